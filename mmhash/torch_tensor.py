"""torch tensors: dtype, shape and bytes, read in place if possible.

torch is imported only once a tensor is an input.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import add, attrgetter, le
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mmhash.dtypes import ITEM_SIZE
from mmhash.errors import DeviceError, InputTypeError, InputValueError, MMHashError
from mmhash.states import FlatBuffer

if TYPE_CHECKING:
    import torch

_NO_MEMORY = (
    "a tensor has less memory than elements: its storage was resized or freed, or it is within a"
    " function transform such as functionalize"
)

# Copy tensors as integers of the same size: a copy of bools would turn every true byte into 1.
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


Content = tuple[str, tuple[int, ...], FlatBuffer | DeviceBytes]
"""The dtype and shape of a tensor, and its flat bytes."""


def is_tensor(item: Any) -> bool:
    """Return True if `item` is a torch tensor; torch need not be installed."""
    return is_tensor_type(item.__class__)


@lru_cache(maxsize=256)
def is_tensor_type(kind: Any) -> bool:
    """Return True for torch's tensor class and its subclasses."""
    # While another thread imports torch, the class may be missing; then no tensor exists yet.
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and issubclass(kind, tensor)


def read_tensor(tensor: "torch.Tensor") -> Content:
    """Return the dtype, shape and bytes of a tensor; those of a short one are a copy."""
    try:
        if tensor.__class__ is not sys.modules["torch"].Tensor:
            tensor = _without_subclass(tensor)
        dtype, is_complex = _tensor_dtype(tensor.dtype)
        shape, on_gpu = tensor.shape, tensor.is_cuda
        if not on_gpu and not tensor.is_cpu:
            tensor = _fetch(tensor)
        nbytes, is_packed, address = tensor.nbytes, tensor.is_contiguous(), tensor.data_ptr()
        if nbytes:
            storage = tensor.untyped_storage()
            length = nbytes if is_packed else _extent(tensor)
            if not address or address - storage.data_ptr() + length > storage.nbytes():
                raise InputValueError(_NO_MEMORY)  # noqa: TRY301
        if tensor.is_neg() or (is_complex and tensor.is_conj()):
            tensor = tensor.resolve_conj().resolve_neg()
            is_packed, address = tensor.is_contiguous(), tensor.data_ptr()
        if not is_packed:
            tensor = _in_c_order(tensor.detach())
            address = tensor.data_ptr()
        if on_gpu:
            return dtype, shape, DeviceBytes(tensor.get_device(), address, nbytes, tensor)
        if 0 < nbytes <= _COPY_MAX:
            return dtype, shape, _memory_at(address)[:nbytes]
        return dtype, shape, _flat_tensor(tensor)
    except (MMHashError, MemoryError):
        raise
    except Exception as error:
        raise _why_unreadable(tensor, error) from error


def _fetch(tensor: "torch.Tensor") -> "torch.Tensor":
    """Copy a tensor from a device other than a CUDA GPU."""
    if tensor.is_meta:
        raise InputTypeError("a meta tensor holds no bytes")
    return tensor.cpu()


def _why_unreadable(tensor: "torch.Tensor", error: Exception) -> MMHashError:
    import torch  # noqa: PLC0415  (imported already: the input is a tensor)

    if tensor.is_nested:
        return InputTypeError("a nested tensor has no single shape: hash its parts as a list")
    if tensor.layout is not torch.strided:
        return InputTypeError(f"a tensor of layout {tensor.layout} is not dense: call to_dense()")
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
def _tensor_dtype(dtype: "torch.dtype") -> tuple[str, bool]:
    """Return the spec's name of a dtype, and whether its tensors may be lazily conjugated."""
    import torch  # noqa: PLC0415  (imported already: the input is a tensor)

    name = str(dtype).removeprefix("torch.")
    if dtype in {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}:
        raise InputTypeError("a quantized tensor is more than its bytes: hash its int_repr()")
    if name not in ITEM_SIZE:
        raise InputTypeError(f"tensors of dtype {name} have no key: convert to a dtype of the spec")
    return name, dtype.is_complex


def _without_subclass(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return a subclass's tensor as a plain tensor, without calling the subclass's methods."""
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


def _extent(tensor: "torch.Tensor") -> int:
    """Return the bytes from a tensor's first element to the end of its last."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * stride for size, stride in sizes)) * tensor.itemsize


def _in_c_order(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return a contiguous copy with the same bits."""
    import torch  # noqa: PLC0415  (imported already: the input is a tensor)

    same_size = _SAME_SIZE.get(tensor.itemsize)  # None: complex128 is copied unchanged
    if same_size is not None:
        tensor = tensor.view(getattr(torch, same_size))
    return tensor.contiguous()


@lru_cache(maxsize=256)
def _buffer_dtype(dtype: "torch.dtype") -> "torch.dtype | None":
    """Return the numpy-readable stand-in for a dtype that numpy lacks, or None if numpy has it."""
    name = str(dtype).removeprefix("torch.")
    if name == "bool" or hasattr(np, name):
        return None
    integers: torch.dtype = getattr(sys.modules["torch"], _SAME_SIZE[dtype.itemsize])
    return integers


def _flat_tensor(tensor: "torch.Tensor") -> memoryview:
    count = tensor.numel()
    if count == 0:  # view() may refuse its strides
        return memoryview(b"")
    if tensor.requires_grad:
        tensor = tensor.detach()
    integers = _buffer_dtype(tensor.dtype)
    if integers is not None:
        tensor = tensor.view(integers)
    return tensor.numpy().data.cast("B")


HOST: Final = -1

# Host tensors up to this size are copied: faster than making a numpy view.
_COPY_MAX = 8 << 10
_memory_at: Callable[[int], Any] = (ctypes.c_char * _COPY_MAX).from_address


def copy_bytes(address: int, nbytes: int) -> bytes:
    """Return a copy of the bytes at an address on the host, at most `_COPY_MAX`."""
    content: bytes = _memory_at(address)[:nbytes]  # reads no other bytes
    return content


LocatedList = tuple[list[int], list[int], list[int], str, list[tuple[int, ...]]]
"""The GPUs (or HOST), addresses and sizes of dense tensors, their common dtype, their shapes."""

_nbytes, _is_cuda, _is_cpu, _dtype, _shape = map(
    attrgetter, ("nbytes", "is_cuda", "is_cpu", "dtype", "shape")
)


def locate_list(items: Sequence[Any]) -> LocatedList | None:
    """Return the locations of dense tensors of one dtype that are all on GPUs, or all short.

    None means that each tensor must be read by itself. For a list of tensors this is the slowest
    step, so each map() reads one attribute of all tensors without running Python code in between.
    """
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    if type(items[0]) is not tensor or len(set(map(type, items))) > 1:
        return None
    dtypes = set(map(_dtype, items))
    if len(dtypes) > 1:
        return None
    try:
        dtype, is_complex = _tensor_dtype(dtypes.pop())
    except InputTypeError:  # reading the first tensor reports and names this
        return None
    try:
        addresses = list(map(tensor.data_ptr, items))
        storages = list(map(tensor.untyped_storage, items))
        shapes = list(map(_shape, items))
    # sparse, nested or in a function transform: reading the first tensor reports this
    except RuntimeError:
        return None
    if shapes.count(shapes[0]) == len(shapes):
        lengths = [items[0].nbytes] * len(items)
    else:
        lengths = list(map(_nbytes, items))
    if all(map(_is_cuda, items)):
        devices = list(map(tensor.get_device, items))
    elif all(map(_is_cpu, items)) and max(lengths) <= _COPY_MAX:
        devices = [HOST] * len(items)
    else:
        return None
    if is_complex or any(map(tensor.is_neg, items)) or not all(map(tensor.is_contiguous, items)):
        return None
    storage: Any = type(storages[0])
    starts, sizes = map(storage.data_ptr, storages), map(storage.nbytes, storages)
    ends, storage_ends = map(add, addresses, lengths), map(add, starts, sizes)
    if not all(addresses) or not all(map(le, ends, storage_ends)):
        return None
    return devices, addresses, lengths, dtype, shapes
