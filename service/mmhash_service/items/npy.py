"""Reads .npy files as they arrive. The array has the same key as in Python."""

from io import BytesIO

import numpy as np

from mmhash.dtypes import ITEM_SIZE
from mmhash_service.bodies.parsing import MAX_DIMS
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.readers import StreamReader
from mmhash_service.problems.problem import Problem

# Only arrays of records need longer headers, and these have no key.
_MAX_HEADER = 1024

_MAGIC = np.lib.format.MAGIC_PREFIX

# For each version: the bytes of the header's length, and numpy's parser of length and header.
_VERSIONS = {
    b"\x01\x00": (2, np.lib.format.read_array_header_1_0),
    b"\x02\x00": (4, np.lib.format.read_array_header_2_0),
}


class NpyReader:
    """Reads an array: the header, then the elements."""

    def __init__(self, context: RequestContext, name: str | None) -> None:
        self._context, self._name = context, name
        self._header = bytearray()
        self._elements: StreamReader | None = None

    def take(self, piece: bytes | memoryview, /) -> None:
        """Collect the header until it is complete, then hash the elements."""
        if self._elements is None:
            before = len(self._header)
            self._header += piece[: _MAX_HEADER - before]
            length = header_length(self._header)
            if length is None or len(self._header) < length:
                return
            tensor = parse_header(self._header[:length])
            self._elements = StreamReader(self._context, self._name, tensor)
            piece = piece[length - before :]
        self._elements.take(piece)

    async def finish(self) -> list[HashedItem]:
        """Return the only item."""
        if self._elements is None:
            raise _invalid("ends within its header")
        return await self._elements.finish()


def header_length(start: bytearray) -> int | None:
    """Return the length of prefix and header, or None if `start` is too short to tell."""
    if start[: len(_MAGIC)] != _MAGIC[: len(start)]:
        raise _invalid(f"begins with {bytes(start[:6])!r}, not {_MAGIC!r}")
    version, rest = bytes(start[6:8]), start[8:]
    if len(version) < 2:
        return None
    if version not in _VERSIONS:
        raise _invalid(f"has version {version[0]}.{version[1]}, and only 1.0 and 2.0 are supported")
    size, _ = _VERSIONS[version]
    if len(rest) < size:
        return None
    length = 8 + size + int.from_bytes(rest[:size], "little")
    if length > _MAX_HEADER:
        raise _invalid(f"has a header of more than {_MAX_HEADER} bytes")
    return length


def parse_header(header: bytearray) -> tuple[str, tuple[int, ...]]:
    """Return dtype and shape. Refuse arrays whose bytes are not in the order that keys need."""
    _, parse = _VERSIONS[bytes(header[6:8])]
    try:
        shape, is_fortran, dtype = parse(BytesIO(header[8:]), max_header_size=_MAX_HEADER)
    except Exception as error:  # numpy raises errors of its parser too, such as TokenError
        raise _invalid("has a header that numpy cannot read") from error
    if dtype.name not in ITEM_SIZE or dtype.byteorder == ">":
        kind = f"{dtype.name} ({dtype.str[:32]})"
        raise _invalid(f"has elements of {kind}, which have no key: convert them, say to float32")
    if is_fortran:
        raise _invalid("is in Fortran order: save np.ascontiguousarray(array)")
    if len(shape) > MAX_DIMS or not all(type(size) is int and size >= 0 for size in shape):
        raise _invalid(f"has an impossible shape, or more than {MAX_DIMS} dimensions")
    return dtype.name, shape


def _invalid(what: str) -> Problem:
    return Problem("invalid-tensor", reason=f"the .npy file {what}")
