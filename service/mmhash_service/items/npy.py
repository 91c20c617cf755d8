"""Reads .npy files as they arrive. The array has the same key as in Python."""

from io import BytesIO

from numpy.lib import format as npy

from mmhash.dtypes import ITEM_SIZE
from mmhash_service.bodies.parsing import MAX_DIMS
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.readers import StreamReader, Tensor
from mmhash_service.problems.problem import Problem

# Only arrays of records need longer headers, and these have no key.
_MAX_HEADER = 1024

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class NpyReader:
    """Reads an array: the header, then the elements."""

    def __init__(self, context: RequestContext, name: str | None) -> None:
        self._context, self._name = context, name
        self._start = bytearray()
        self._elements: StreamReader | None = None

    def take(self, piece: bytes | memoryview, /) -> None:
        """Collect enough for any header, then hash the elements."""
        if self._elements is not None:
            self._elements.take(piece)
            return
        self._start += piece
        if len(self._start) >= _MAX_HEADER:
            self._begin()

    async def finish(self) -> list[HashedItem]:
        """Return the only item."""
        return await (self._elements or self._begin()).finish()

    def _begin(self) -> StreamReader:
        start, self._start = self._start, bytearray()
        tensor, length = parse_header(bytes(start[:_MAX_HEADER]))
        self._elements = StreamReader(self._context, self._name, tensor)
        self._elements.take(memoryview(start)[length:])
        return self._elements


def parse_header(start: bytes) -> tuple[Tensor, int]:
    """Return dtype and shape, and the header's length.

    Refuse arrays whose bytes are not in the order that keys need.
    """
    if not start.startswith(npy.MAGIC_PREFIX):
        raise _invalid(f"begins with {start[:6]!r}, not {npy.MAGIC_PREFIX!r}")
    file = BytesIO(start)
    try:
        parse = _HEADERS[npy.read_magic(file)]
        shape, is_fortran, dtype = parse(file, max_header_size=_MAX_HEADER)
    except Exception as error:  # numpy raises errors of its parser too, such as TokenError
        raise _invalid("has no header of version 1.0 or 2.0 that numpy can read") from error
    if dtype.name not in ITEM_SIZE or dtype.byteorder == ">":
        kind = f"{dtype.name} ({dtype.str[:32]})"
        raise _invalid(f"has elements of {kind}, which have no key: convert them, say to float32")
    if is_fortran:
        raise _invalid("is in Fortran order: save np.ascontiguousarray(array)")
    if len(shape) > MAX_DIMS or not all(type(size) is int and size >= 0 for size in shape):
        raise _invalid(f"has an impossible shape, or more than {MAX_DIMS} dimensions")
    return (dtype.name, shape), file.tell()


def _invalid(what: str) -> Problem:
    return Problem("invalid-tensor", reason=f"the .npy file {what}")
