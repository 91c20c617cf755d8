"""Views: any input as kind, dtype, shape and flat bytes, read in place if possible.

Inputs without bytes of their own are refused by an error that names their type. Nothing is
unpickled, and neither torch nor Pillow is imported before one of their objects is an input.
"""

import ctypes
import mmap
import os
import re
from array import array
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from mmhash.dtypes import ITEM_SIZE
from mmhash.errors import DeviceError, InputTypeError, InputValueError
from mmhash.memory import need_copy
from mmhash.pil_image import is_image, read_pil_image
from mmhash.states import FlatBuffer
from mmhash.torch_tensor import DeviceBytes, is_tensor, read_tensor

if TYPE_CHECKING:
    from PIL import Image

Kind = Literal["bytes", "tensor", "image", "list"]

_DLPACK_HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost

# Codes of a buffer's format that mean an address. "Zf", "Zd" and "Zg" are complex numbers.
_ADDRESS = re.compile(r"[OPXz&]|Z(?![fdg])")
_CData: type = ctypes.c_int.__mro__[2]  # the base class of all ctypes objects


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
        return View("tensor", *read_tensor(item, copy))
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
        need_copy("a buffer that is not C-contiguous", copy, buffer.nbytes)
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
        need_copy("a big-endian array", copy, values.nbytes)
        values = values.byteswap()
    if not values.flags.c_contiguous:
        need_copy("an array that is not C-contiguous", copy, values.nbytes)
        values = np.ascontiguousarray(values)
    return View("tensor", name, shape, _flat_array(values))


def _flat_array(values: np.ndarray[Any, Any]) -> memoryview:
    try:
        return values.data.cast("B")  # 0.2 µs; the other way takes 0.5
    except (TypeError, ValueError):  # a dtype that has no buffer, or none that cast() knows; empty
        return values.reshape(-1).view(np.uint8).data


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
    return View("tensor", *read_tensor(tensor, copy))


def _view_of_image(image: "Image.Image", copy: bool) -> View:
    need_copy("a PIL image", copy)
    pixels, extra = read_pil_image(image)
    return View("image", "", (1,), memoryview(pixels), extra)
