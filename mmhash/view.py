"""Views: any input as kind, dtype, shape and flat bytes, read in place if possible.

Inputs without bytes of their own are refused by an error that names their type. Nothing is
unpickled, and neither torch nor Pillow is imported before one of their objects is an input.
"""

import ctypes
import mmap
import os
import re
import sys
from array import array
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from mmhash.errors import DeviceError, InputTypeError, InputValueError, MMHashError
from mmhash.memory import check_copy
from mmhash.pil_image import read_pil_image
from mmhash.states import FlatBuffer

if TYPE_CHECKING:
    import torch
    from PIL import Image

Kind = Literal["bytes", "tensor", "image", "list"]

# The dtypes that have a key, by their name in torch and numpy (with ml_dtypes), and the bytes of an
# element. Spec v1 lists exactly these: a new one needs a line there.
ITEM_SIZE = {
    "bool": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
}

_DLPACK_HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost

# Integers of the same size: torch writes 1 for every bool but 0 when it copies bools.
_SAME_SIZE = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}

# Codes of a buffer's format that mean an address. "Zf", "Zd" and "Zg" are complex numbers.
_ADDRESS = re.compile(r"[OPXz&]|Z(?![fdg])")
_CData: type = ctypes.c_int.__mro__[2]  # the base class of all ctypes objects


class DeviceBytes(NamedTuple):
    """Flat bytes in a GPU's memory, and the tensor that owns them."""

    device: int
    address: int
    nbytes: int
    owner: "torch.Tensor"

    def to_host(self) -> memoryview:
        """Copy the bytes to the host."""
        return _flat_tensor(self.owner.cpu())


class View(NamedTuple):
    """An input's metadata and the location of its bytes.

    `extra` holds metadata that only images have: modes, sizes and palettes, as a frame needs them.
    `check_lease`, if there is one, raises an error if the bytes, which are leased, may have changed
    while they were read.
    """

    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    data: memoryview | DeviceBytes
    extra: bytes = b""
    check_lease: Callable[[], None] | None = None

    def on_host(self) -> memoryview:
        """Return the bytes in host memory; bytes on a GPU and leased bytes are copied."""
        if not isinstance(self.data, memoryview):
            return self.data.to_host()
        if self.check_lease is None:
            return self.data
        content = memoryview(bytes(self.data))
        self.check_lease()
        return content


def view_of(item: Any, *, copy: bool = True) -> View:
    """Return the view of `item`: its metadata and the location of its bytes.

    With `copy=False`, an input whose bytes are not contiguous, in C order and little-endian is
    refused instead of copied.
    """
    kind = type(item)
    if kind is bytes:
        return View("bytes", "", (), memoryview(item))
    if kind is np.ndarray:
        return _view_of_array(item, copy)
    if is_tensor(item):  # 0.5 µs for other objects
        return _view_of_tensor(item, copy)
    if isinstance(item, (bytes, bytearray, memoryview, mmap.mmap, array)):
        return View("bytes", "", (), _flat_buffer(_buffer_of(item), copy))
    if isinstance(item, (np.ndarray, np.generic)):
        return _view_of_array(np.asanyarray(item), copy)
    if is_image(item):
        return _view_of_image(item, copy)
    if hasattr(item, "__mmhash_view__"):  # a handle of mmhash.transport, opened here
        view: View = item.__mmhash_view__()
        return view
    if hasattr(item, "__dlpack__") and hasattr(item, "__dlpack_device__"):
        return _view_of_dlpack(item, copy)
    if item is not None and not isinstance(item, (str, list, tuple)):
        try:
            buffer = _buffer_of(item)
        except TypeError:
            pass
        else:
            return View("bytes", "", (), _flat_buffer(buffer, copy))
    raise InputTypeError(_why_refused(item))


def bytes_of(item: Any) -> memoryview:
    """Return only the flat bytes of `item`, copied to the host if they are on a GPU."""
    return view_of(item).on_host()


def is_tensor(item: Any) -> bool:
    """Return True if `item` is a torch tensor; torch need not be installed."""
    # While another thread imports torch, the class may be missing: then no object of it exists.
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(item, kind)


def is_image(item: Any) -> bool:
    """Return True if `item` is a PIL image; Pillow need not be installed."""
    kind = getattr(sys.modules.get("PIL.Image"), "Image", None)
    return kind is not None and isinstance(item, kind)


def _why_refused(item: Any) -> str:
    match item:
        case None:
            return "None has no content to hash"
        case str():
            return (
                "a str has no bytes of its own: encode it first, for example text.encode(), or use"
                " key_file() for the file of that name"
            )
        case list() | tuple():
            return (
                f"a {type(item).__name__} has no bytes of its own: keys() hashes each of its"
                " items, key() hashes it as one item of several parts"
            )
        case os.PathLike():
            return "a path has no bytes of its own: use key_file() or digest_file()"
        case _:
            return (
                f"cannot hash a {type(item).__module__}.{type(item).__qualname__}: give a"
                " bytes-like object, a numpy array, a torch tensor, a DLPack array or a PIL image"
            )


def _need_copy(what: str, copy: bool, nbytes: int = 0) -> None:
    if not copy:
        raise InputValueError(f"{what} cannot be read in place, and copy=False forbids a copy")
    check_copy(what, nbytes)


def _buffer_of(item: Any) -> memoryview:
    try:
        return memoryview(item)
    except (BufferError, ValueError) as error:  # released, closed
        name = f"{type(item).__module__}.{type(item).__qualname__}"
        raise InputValueError(f"the buffer of this {name} cannot be read: {error}") from error


def _flat_buffer(buffer: memoryview, copy: bool) -> memoryview:
    if _has_addresses(buffer.format) or (
        isinstance(buffer.obj, _CData) and _has_pointers(type(buffer.obj))
    ):
        raise InputTypeError(
            "a buffer of object pointers or other addresses has no content: hash what is at them"
        )
    if not buffer.c_contiguous:
        _need_copy("a buffer that is not C-contiguous", copy, buffer.nbytes)
        return memoryview(buffer.tobytes())
    if buffer.nbytes == 0:
        return memoryview(b"")
    try:
        return buffer.cast("B")
    except TypeError:  # a format such as ctypes' "<i", which cast() does not support
        return np.frombuffer(buffer, np.uint8).data


@lru_cache(maxsize=256)
def _has_addresses(form: str) -> bool:
    return _ADDRESS.search(re.sub(":[^:]*:", "", form)) is not None  # without names of fields


@lru_cache(maxsize=256)
def _has_pointers(kind: Any) -> bool:
    """Look for pointers in a ctypes type, which the format of a union hides."""
    if issubclass(kind, (ctypes._Pointer, ctypes._CFuncPtr)):  # type: ignore[attr-defined]
        return True
    if issubclass(kind, ctypes._SimpleCData):
        return kind._type_ in "OPXzZ"
    if issubclass(kind, ctypes.Array):
        return _has_pointers(kind._type_)
    fields = (field for base in kind.__mro__ for field in vars(base).get("_fields_", ()))
    return any(_has_pointers(field[1]) for field in fields)


@lru_cache(maxsize=256)
def _dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the spec's name of a numpy dtype; cached, because numpy takes 1.4 µs to format it."""
    if dtype.hasobject:
        raise InputTypeError("an object array holds pointers, not content: convert its elements")
    if dtype.names is not None:
        raise InputTypeError("a structured array has no single dtype: hash its fields one by one")
    if dtype.name not in ITEM_SIZE or ITEM_SIZE[dtype.name] != dtype.itemsize:
        raise InputTypeError(f"arrays of dtype {dtype} have no key: convert to a dtype of the spec")
    return dtype.name


def _view_of_array(values: np.ndarray[Any, Any], copy: bool) -> View:
    if type(values) is not np.ndarray:
        if isinstance(values, np.ma.MaskedArray):
            raise InputTypeError(
                "a masked array has no bytes where it is masked: call filled() first"
            )
        values = np.asarray(values)  # np.matrix keeps two dimensions in reshape()
    name = _dtype_name(values.dtype)
    shape = values.shape
    if values.dtype.byteorder == ">":
        _need_copy("a big-endian array", copy, values.nbytes)
        values = values.byteswap()
    if not values.flags.c_contiguous:
        _need_copy("an array that is not C-contiguous", copy, values.nbytes)
        values = np.ascontiguousarray(values)
    return View("tensor", name, shape, _flat_array(values))


def _flat_array(values: np.ndarray[Any, Any]) -> memoryview:
    try:
        return values.data.cast("B")  # 0.2 µs; the other way takes 0.5
    except (TypeError, ValueError):  # a dtype that has no buffer, or none that cast() knows; empty
        return values.reshape(-1).view(np.uint8).data


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


def _view_of_tensor(tensor: "torch.Tensor", copy: bool) -> View:
    try:
        return _read_tensor(tensor, copy)
    except (MMHashError, MemoryError):
        raise
    except Exception as error:
        raise _why_unreadable(tensor, error) from error


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


def _read_tensor(tensor: "torch.Tensor", copy: bool) -> View:
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
        _need_copy(f"a tensor on {tensor.device}", copy)
        tensor = tensor.cpu()
    contiguous = tensor.is_contiguous()
    _check_storage(tensor, contiguous=contiguous)
    if tensor.is_neg() or tensor.is_conj():
        _need_copy("a lazily conjugated or negated tensor", copy, tensor.nbytes)
        tensor = tensor.resolve_conj().resolve_neg()
        contiguous = tensor.is_contiguous()
    if not contiguous:
        _need_copy("a tensor that is not contiguous", copy, tensor.nbytes)
        tensor = _in_c_order(tensor.detach())
    if on_gpu:
        data = DeviceBytes(tensor.get_device(), tensor.data_ptr(), tensor.nbytes, tensor)
        return View("tensor", name, shape, data)
    return View("tensor", name, shape, _flat_tensor(tensor))


Located = tuple[int, tuple[int, int], str, tuple[int, ...]]
"""A dense tensor: its GPU or HOST, address and bytes, dtype, and shape as torch has it."""

HOST: Final = -1

# Host tensors up to this size are copied: a copy of 4 KiB takes 0.2 µs, numpy's view of it 1.0.
_COPY_MAX = 8 << 10
_memory_at: Callable[[int], Any] = (ctypes.c_char * _COPY_MAX).from_address


def locate(item: Any) -> Located | None:
    """Return the location of a dense tensor that is on a GPU, or short; else None: use `view_of`.

    A list of tensors takes most of its time here: 1.2 µs for each, and 3.6 by a view.
    """
    if type(item) is not getattr(sys.modules.get("torch"), "Tensor", None):
        return None
    try:
        nbytes = item.nbytes
        if not item.is_cuda and not (item.is_cpu and nbytes <= _COPY_MAX):
            return None
        if item.is_neg() or not item.is_contiguous():
            return None
        dtype = _tensor_dtype(item.dtype, item.layout)
        if "complex" in dtype and item.is_conj():
            return None
        address = item.data_ptr()
        end = item.storage_offset() * item.itemsize + nbytes
        if nbytes and (not address or item.untyped_storage().nbytes() < end):
            return None
        # A nested tensor has no shape: an error, too.
        return item.get_device(), (address, nbytes), dtype, item.shape
    except Exception:  # noqa: BLE001  (view_of raises an error with the reason)
        return None


def copy_located(segment: tuple[int, int]) -> bytes:
    """Return a copy of the bytes of a tensor that `locate` has found on the host."""
    address, nbytes = segment
    # Reads no other byte, and takes 0.2 µs, where ctypes.string_at() takes 0.55.
    content: bytes = _memory_at(address)[:nbytes]
    return content


ShortView = tuple[Kind, str, tuple[int, ...], FlatBuffer]
"""The members of a View that plain bytes and arrays have."""


def short_view(item: Any) -> ShortView | None:
    """Return the view of bytes or a numpy array if no check can fail; else None: use `view_of`.

    It takes 0.1 µs for bytes and 0.6 for an array; `view_of` takes 0.4 and 0.9.
    """
    kind = type(item)
    if kind is bytes:
        return "bytes", "", (), item
    if kind is not np.ndarray or item.dtype.byteorder == ">":
        return None
    try:
        return "tensor", _dtype_name(item.dtype), item.shape, item.data.cast("B")
    except (InputTypeError, TypeError, ValueError):  # cast() takes only C order
        return None


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


def _view_of_dlpack(item: Any, copy: bool) -> View:
    """Read an array with numpy if it is on the host and numpy has its dtype, else with torch.

    The exporter can be any object, and may raise any exception.
    """
    name = f"{type(item).__module__}.{type(item).__qualname__}"
    try:
        on_host = item.__dlpack_device__()[0] in _DLPACK_HOST_DEVICES
    except Exception as error:
        raise DeviceError(f"cannot read a {name}: it does not report its device") from error
    if on_host:
        try:
            values = np.from_dlpack(item)
        except Exception:  # noqa: BLE001, S110  (torch is next)
            pass
        else:
            return _view_of_array(values, copy)
    try:
        from torch.utils.dlpack import from_dlpack  # noqa: PLC0415  (numpy cannot read it)
    except ImportError:
        raise DeviceError(
            f"cannot read a {name}: numpy cannot, and torch is not installed"
        ) from None
    try:
        tensor = from_dlpack(item)
    except Exception as error:
        raise DeviceError(f"cannot read a {name}: neither numpy nor torch can") from error
    return _view_of_tensor(tensor, copy)


def _view_of_image(image: "Image.Image", copy: bool) -> View:
    _need_copy("a PIL image", copy)
    frames, pixels, extra = read_pil_image(image)
    return View("image", "", (frames,), memoryview(pixels), extra)
