"""torch tensors: dtype, shape and bytes, read in place if possible.

torch is not imported before a tensor is an input.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import add, attrgetter, le
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mmhash.dtypes import ITEM_SIZE
from mmhash.errors import (
    DeviceError,
    InputTypeError,
    InputValueError,
    MMHashError,
)
from mmhash.memory import need_copy

if TYPE_CHECKING:
    import torch

# Integers of the same size: torch writes 1 for every bool but 0 when it copies bools.
_SAME_SIZE = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


class DeviceBytes(NamedTuple):
    """Flat bytes in a GPU's memory, and the tensor that owns them."""

    device: int
    address: int
    nbytes: int
    owner: "torch.Tensor"

    def to_host(self) -> memoryview:
        """Copy the bytes to the host."""
        return _flat_tensor(self.owner.cpu())


Content = tuple[str, tuple[int, ...], memoryview | DeviceBytes]
"""The dtype and shape of a tensor, and its flat bytes."""


def is_tensor(item: Any) -> bool:
    """Return True if `item` is a torch tensor; torch need not be installed."""
    # While another thread imports torch, the class may be missing: then no object of it exists.
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(item, kind)


def read_tensor(tensor: "torch.Tensor", copy: bool) -> Content:
    """Return the dtype, shape and bytes of a tensor; without `copy`, one to copy is refused."""
    try:
        return _read(tensor, copy)
    except (MMHashError, MemoryError):
        raise
    except Exception as error:
        raise _why_unreadable(tensor, error) from error


def _read(tensor: "torch.Tensor", copy: bool) -> Content:
    if type(tensor) is not sys.modules["torch"].Tensor:
        tensor = _without_subclass(tensor)
    if tensor.is_nested:
        raise InputTypeError("a nested tensor has no single shape: hash its parts as a list")
    name = _tensor_dtype(tensor.dtype, tensor.layout)
    shape = tuple(tensor.shape)
    on_gpu = tensor.is_cuda
    if not (on_gpu or tensor.is_cpu):
        if tensor.is_meta:
            raise InputTypeError("a meta tensor holds no bytes")
        _check_storage(tensor, contiguous=tensor.is_contiguous())
        need_copy(f"a tensor on {tensor.device}", copy)
        tensor = tensor.cpu()
    contiguous = tensor.is_contiguous()
    _check_storage(tensor, contiguous=contiguous)
    if tensor.is_neg() or tensor.is_conj():
        need_copy("a lazily conjugated or negated tensor", copy, tensor.nbytes)
        tensor = tensor.resolve_conj().resolve_neg()
        contiguous = tensor.is_contiguous()
    if not contiguous:
        need_copy("a tensor that is not contiguous", copy, tensor.nbytes)
        tensor = _in_c_order(tensor.detach())
    if on_gpu:
        data = DeviceBytes(tensor.get_device(), tensor.data_ptr(), tensor.nbytes, tensor)
        return name, shape, data
    return name, shape, _flat_tensor(tensor)


def _why_unreadable(tensor: "torch.Tensor", error: Exception) -> MMHashError:
    import torch  # noqa: PLC0415  (imported already: the input is a tensor)

    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return InputTypeError(
            "a tensor within vmap, grad or another function transform holds no bytes of its own:"
            " hash it outside"
        )
    reason = str(error).partition("\n")[0]
    if "CUDA" in reason:
        return DeviceError(f"a GPU failed: {reason}")
    return InputTypeError(f"torch cannot read this tensor: {reason}")


@lru_cache(maxsize=256)
def _tensor_dtype(dtype: "torch.dtype", layout: "torch.layout") -> str:
    """Return the spec's name of a tensor's dtype, if such tensors have bytes of their own."""
    import torch  # noqa: PLC0415  (imported already: the input is a tensor)

    name = str(dtype).removeprefix("torch.")
    if dtype in {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}:
        raise InputTypeError("a quantized tensor is more than its bytes: hash its int_repr()")
    if layout is not torch.strided:
        raise InputTypeError(f"a tensor of layout {layout} is not dense: call to_dense()")
    if name not in ITEM_SIZE:
        raise InputTypeError(f"tensors of dtype {name} have no key: convert to a dtype of the spec")
    return name


def _without_subclass(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return a subclass's tensor as a plain one, without calling the subclass's methods."""
    import torch  # noqa: PLC0415  (imported already: the input is a tensor)

    kind: Any = type(tensor)
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.is_nested:
            raise InputTypeError("a nested tensor has no single shape: hash its parts as a list")
        if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            raise InputTypeError(
                f"a {kind.__name__} (fake, functional or distributed) holds no bytes of its own"
            )
        if torch.nn.parameter.is_lazy(tensor):
            raise InputTypeError(f"an {kind.__name__} has no content yet: run its module first")
        plain: torch.Tensor = tensor.as_subclass(torch.Tensor)
        return plain


def _check_storage(tensor: "torch.Tensor", *, contiguous: bool) -> None:
    """Refuse a tensor that reaches beyond its memory, which may have been resized or freed."""
    nbytes = tensor.nbytes
    if not nbytes:
        return
    if not contiguous:
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        nbytes = (1 + sum((size - 1) * stride for size, stride in sizes)) * tensor.itemsize
    end = tensor.storage_offset() * tensor.itemsize + nbytes
    if tensor.untyped_storage().nbytes() < end or not tensor.data_ptr():
        raise InputValueError(
            "a tensor has less memory than elements: its storage was resized or freed, or it is"
            " within a function transform such as functionalize"
        )


def _in_c_order(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return a contiguous copy with the same bits."""
    import torch  # noqa: PLC0415  (imported already: the input is a tensor)

    same_size = _SAME_SIZE.get(tensor.itemsize)  # None: complex128, which is copied unchanged
    if same_size is not None:
        tensor = tensor.view(getattr(torch, same_size))
    return tensor.contiguous()


@lru_cache(maxsize=256)
def _buffer_dtype(dtype: "torch.dtype") -> "torch.dtype | None":
    """Return the dtype as which numpy reads a tensor of one that numpy lacks; None: it has it.

    To refuse such a tensor, as of bfloat16, takes torch's numpy() 20 µs.
    """
    name = str(dtype).removeprefix("torch.")
    if name == "bool" or hasattr(np, name):
        return None
    integers: torch.dtype = getattr(sys.modules["torch"], _SAME_SIZE[dtype.itemsize])
    return integers


def _flat_tensor(tensor: "torch.Tensor") -> memoryview:
    count = tensor.numel()
    if count == 0:  # its strides may be ones that view() refuses
        return memoryview(b"")
    if tensor.requires_grad:
        tensor = tensor.detach()
    integers = _buffer_dtype(tensor.dtype)
    if integers is not None:
        tensor = tensor.view(integers)
    return tensor.numpy().data.cast("B")


Located = tuple[int, tuple[int, int], str, tuple[int, ...]]
"""A dense tensor: its GPU or HOST, address and bytes, dtype, and shape as torch has it."""

HOST: Final = -1

# Host tensors up to this size are copied: a copy of 4 KiB takes 0.2 µs, numpy's view of it 1.0.
_COPY_MAX = 8 << 10
_memory_at: Callable[[int], Any] = (ctypes.c_char * _COPY_MAX).from_address


def _is_plain(kind: type) -> bool:
    """Return True for the class of tensors itself: a subclass can override any method."""
    return kind is getattr(sys.modules.get("torch"), "Tensor", None)


def _strided_dtype(dtype: "torch.dtype") -> tuple[str, bool]:
    """Return the spec's name of a dtype, and True if tensors of it can be lazily conjugated."""
    return _tensor_dtype(dtype, sys.modules["torch"].strided), dtype.is_complex


class _Table(dict[Any, Any]):
    """The results of a function of one argument: found in 0.03 µs, lru_cache takes 0.06."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, argument: Any) -> Any:
        if len(self) == 256:
            self.clear()
        result = self[argument] = self._function(argument)
        return result


_IS_PLAIN, _STRIDED_DTYPE = _Table(_is_plain), _Table(_strided_dtype)


def locate(item: Any) -> Located | None:
    """Return the location of a dense tensor that is on a GPU, or short; else None: use `view_of`.

    It takes 0.95 µs, and a view 3.6.
    """
    if not _IS_PLAIN[type(item)]:
        return None
    try:
        nbytes = item.nbytes
        if item.is_cuda:
            device = item.get_device()
        elif item.is_cpu and nbytes <= _COPY_MAX:
            device = HOST
        else:
            return None
        if item.is_neg() or not item.is_contiguous():
            return None
        dtype, is_complex = _STRIDED_DTYPE[item.dtype]
        if is_complex and item.is_conj():
            return None
        address = item.data_ptr()
        storage = item.untyped_storage()
        if nbytes and (not address or storage.nbytes() < address - storage.data_ptr() + nbytes):
            return None
        # A tensor of another layout has no address, and a nested one no shape: errors, too.
        return device, (address, nbytes), dtype, item.shape  # noqa: TRY300
    except Exception:  # noqa: BLE001  (view_of raises an error with the reason)
        return None


LocatedList = tuple[list[int], list[int], list[int], str, list[tuple[int, ...]]]
"""Dense tensors: the GPU of each, or HOST, its address and bytes; the dtype of all; the shapes."""

_nbytes, _is_cuda, _is_cpu, _dtype, _shape = map(
    attrgetter, ("nbytes", "is_cuda", "is_cpu", "dtype", "shape")
)


def locate_list(items: Sequence[Any]) -> LocatedList | None:
    """Return the locations of tensors if `locate` finds each; all have one dtype, none is empty.

    A list of tensors takes most of its time here: 0.75 µs for each. map() puts each question to all
    of them with no Python in between.
    """
    tensor: Any = type(items[0])
    if not _IS_PLAIN[tensor] or len(set(map(type, items))) > 1:
        return None
    try:
        shapes = list(map(_shape, items))
        dtypes = set(map(_dtype, items))
        if shapes.count(shapes[0]) == len(shapes) and len(dtypes) == 1:
            lengths = [items[0].nbytes] * len(items)
        else:
            lengths = list(map(_nbytes, items))
        if all(map(_is_cuda, items)):
            devices = list(map(tensor.get_device, items))
        elif all(map(_is_cpu, items)) and max(lengths) <= _COPY_MAX:
            devices = [HOST] * len(items)
        else:
            return None
        dtype, is_complex = _STRIDED_DTYPE[dtypes.pop()]
        if dtypes or is_complex:
            return None
        if any(map(tensor.is_neg, items)) or not all(map(tensor.is_contiguous, items)):
            return None
        addresses = list(map(tensor.data_ptr, items))
        storages = list(map(tensor.untyped_storage, items))
        storage: Any = type(storages[0])
        starts, sizes = map(storage.data_ptr, storages), map(storage.nbytes, storages)
        ends, storage_ends = map(add, addresses, lengths), map(add, starts, sizes)
        if not all(addresses) or not all(map(le, ends, storage_ends)):
            return None
        return devices, addresses, lengths, dtype, shapes  # noqa: TRY300
    except Exception:  # noqa: BLE001  (as in locate)
        return None


def copy_located(segment: tuple[int, int]) -> bytes:
    """Return a copy of the bytes of a tensor that `locate` has found on the host."""
    address, nbytes = segment
    # Reads no other byte, and takes 0.2 µs, where ctypes.string_at() takes 0.55.
    content: bytes = _memory_at(address)[:nbytes]
    return content
