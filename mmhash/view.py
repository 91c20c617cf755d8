"""Views: any input as kind, dtype, shape and flat bytes, read in place if possible.

An input without bytes of its own is refused with an error that names its type. Nothing is
unpickled. torch and Pillow are imported only once an input is one of their objects.
"""

import mmap
import os
import re
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from mmhash.dtypes import ITEM_SIZE
from mmhash.errors import DeviceError, InputTypeError, InputValueError
from mmhash.pil_image import is_image, read_pil_image
from mmhash.states import FlatBuffer
from mmhash.torch_tensor import DeviceBytes, is_tensor_type, read_tensor

if TYPE_CHECKING:
    from PIL import Image

Kind = Literal["bytes", "tensor", "image", "list"]

_DLPACK_HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost

# The format codes of addresses in a buffer. "Zf", "Zd" and "Zg" are complex numbers.
_ADDRESS = re.compile(r"[OPXz&]|Z(?![fdg])")


class View(NamedTuple):
    """An input's metadata and the location of its bytes.

    `extra` holds what only images have, as framing takes it: modes, sizes and palettes.
    `check_lease`, if set, raises an error if leased bytes may have changed while they were read.
    """

    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    data: FlatBuffer | DeviceBytes
    extra: bytes = b""
    check_lease: Callable[[], None] | None = None

    def on_host(self) -> memoryview:
        """Return the bytes in host memory; bytes on a GPU and leased bytes are copied."""
        if isinstance(self.data, DeviceBytes):
            return self.data.to_host()
        if self.check_lease is None:
            return memoryview(self.data)
        content = memoryview(bytes(self.data))
        self.check_lease()
        return content


Members = tuple[
    Kind, str, tuple[int, ...], FlatBuffer | DeviceBytes, bytes, Callable[[], None] | None
]
"""The members of a View. Making a View takes as long as reading a short array."""


def view_of(item: Any) -> View:
    """Return the view of `item`: its metadata and the location of its bytes."""
    kind, dtype, shape, data, extra, check_lease = read_view(item)
    # The shape of a tensor has torch's own class, which is not JSON.
    return View(kind, dtype, tuple(shape), data, extra, check_lease)


def read_view(item: Any) -> Members:
    """Return the members of the view of `item`."""
    kind = item.__class__
    if kind is np.ndarray:
        return _read_array(item)
    if kind is bytes:
        return "bytes", "", (), memoryview(item), b"", None
    if is_tensor_type(kind):
        dtype, shape, data = read_tensor(item)
        return "tensor", dtype, shape, data, b"", None
    if isinstance(item, (bytes, bytearray, memoryview, mmap.mmap, array)):
        return _read_buffer(_buffer_of(item))
    if isinstance(item, (np.ndarray, np.generic)):
        return _read_array(np.asanyarray(item))
    if is_image(item):
        return _read_image(item)
    if hasattr(item, "__mmhash_view__"):  # a handle of mmhash.transport, opened here
        view: View = item.__mmhash_view__()
        return view
    if hasattr(item, "__dlpack__") and hasattr(item, "__dlpack_device__"):
        return _read_dlpack(item)
    if item is not None and not isinstance(item, (str, list, tuple)):
        try:
            buffer = _buffer_of(item)
        except TypeError:
            pass
        else:
            return _read_buffer(buffer)
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
                f"cannot hash a {type(item).__module__}.{type(item).__qualname__}: pass a"
                " bytes-like object, a numpy array, a torch tensor, a DLPack array or a PIL image"
            )


def _buffer_of(item: Any) -> memoryview:
    try:
        return memoryview(item)
    except (BufferError, ValueError) as error:  # released or closed
        name = f"{type(item).__module__}.{type(item).__qualname__}"
        raise InputValueError(f"the buffer of this {name} cannot be read: {error}") from error


def _read_buffer(buffer: memoryview) -> Members:
    return "bytes", "", (), _flat_buffer(buffer), b"", None


def _flat_buffer(buffer: memoryview) -> memoryview:
    if _has_addresses(buffer.format):
        raise InputTypeError(
            "a buffer of object pointers or other addresses has no content: hash what is at them"
        )
    if not buffer.c_contiguous:
        return memoryview(buffer.tobytes())
    if buffer.nbytes == 0:
        return memoryview(b"")
    try:
        return buffer.cast("B")
    except TypeError:  # a format such as ctypes' "<i", which cast() does not support
        return np.frombuffer(buffer, np.uint8).data


@lru_cache(maxsize=256)
def _has_addresses(form: str) -> bool:
    return _ADDRESS.search(re.sub(":[^:]*:", "", form)) is not None  # without the names of fields


@lru_cache(maxsize=256)
def _dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the spec's name of a numpy dtype; cached, because numpy formats it each time."""
    if dtype.hasobject:
        raise InputTypeError("an object array holds pointers, not content: convert its elements")
    if dtype.names is not None:
        raise InputTypeError("a structured array has no single dtype: hash its fields one by one")
    if dtype.name not in ITEM_SIZE or ITEM_SIZE[dtype.name] != dtype.itemsize:
        raise InputTypeError(f"arrays of dtype {dtype} have no key: convert to a dtype of the spec")
    return dtype.name


def _read_array(values: np.ndarray[Any, Any]) -> Members:
    if type(values) is not np.ndarray:
        if isinstance(values, np.ma.MaskedArray):
            raise InputTypeError(
                "a masked array has no bytes where it is masked: call filled() first"
            )
        values = np.asarray(values)  # np.matrix keeps two dimensions in reshape()
    dtype = values.dtype
    name = _dtype_name(dtype)
    if dtype.byteorder == ">":
        values = values.byteswap()
    try:
        data = values.data.cast("B")
    except (TypeError, ValueError):  # not in C order, empty, or of a dtype without a buffer
        data = _flat_array(values)
    return "tensor", name, values.shape, data, b"", None


def _flat_array(values: np.ndarray[Any, Any]) -> memoryview:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _read_dlpack(item: Any) -> Members:
    """Read an array with numpy if it is on the host and numpy has its dtype, else with torch."""
    name = f"{type(item).__module__}.{type(item).__qualname__}"
    if item.__dlpack_device__()[0] in _DLPACK_HOST_DEVICES:
        with suppress(BufferError, RuntimeError):  # try torch next
            return _read_array(np.from_dlpack(item))
    try:
        from torch.utils.dlpack import from_dlpack  # noqa: PLC0415  (numpy cannot read it)

        tensor = from_dlpack(item)
    except ImportError:
        raise DeviceError(
            f"cannot read a {name}: numpy cannot, and torch is not installed"
        ) from None
    # torch asserts that it was built with support for the device.
    except (AssertionError, BufferError, RuntimeError) as error:
        raise DeviceError(f"cannot read a {name}: neither numpy nor torch can") from error
    dtype, shape, data = read_tensor(tensor)
    return "tensor", dtype, shape, data, b"", None


def _read_image(image: "Image.Image") -> Members:
    pixels, extra = read_pil_image(image)
    return "image", "", (1,), pixels, extra, None
