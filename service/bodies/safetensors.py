"""A safetensors body, an item a tensor: each is hashed as its bytes come, and none is held.

The header is checked before the first of them, by the rules of the safetensors package.
"""

import json
from math import prod
from typing import Any, NamedTuple

from mmhash.io.safetensors import DTYPES, HEADER_LENGTH_SIZE
from mmhash.view import ITEM_SIZE
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import Item
from mmhash_service.bodies.parsing import MAX_DIMS
from mmhash_service.bodies.stream import AlignedHasher
from mmhash_service.runtime.context import RequestContext

MAX_HEADER = 1 << 20
# With that many commas the longest header takes 4 ms to read.
MAX_COMMAS = 40_000

_FIELDS = {"dtype", "shape", "data_offsets"}


class Tensor(NamedTuple):
    """A tensor that is still to come."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class SafetensorsReader:
    """A safetensors file: its header first, then its tensors one after another."""

    def __init__(self, call: RequestContext) -> None:
        self._call = call
        self._header = bytearray()
        self._header_length: int | None = None
        self._tensors: list[Tensor] | None = None
        self._items: list[Item] = []
        self._stream = AlignedHasher(call.algorithm)
        self._missing = 0

    def take(self, piece: bytes | memoryview, /) -> None:
        """Take the next piece of the header or hash that of tensors."""
        rest = memoryview(piece)
        while self._tensors is None and rest:
            rest = self._take_header(rest)
        if self._tensors is not None:
            self._take_tensors(self._tensors, rest)

    async def finish(self) -> list[Item]:
        """The items in the order in which they lie in the file."""
        if self._tensors is None or len(self._items) != len(self._tensors):
            raise Problem("damaged-safetensors")
        return self._items

    def _take_header(self, piece: memoryview) -> memoryview:
        wanted = HEADER_LENGTH_SIZE if self._header_length is None else self._header_length
        count = wanted - len(self._header)
        self._header += piece[:count]
        if len(self._header) == wanted:
            if self._header_length is None:
                self._header_length = int.from_bytes(self._header, "little")
                if not 2 <= self._header_length <= MAX_HEADER:
                    raise Problem("invalid-safetensors-header")
                self._header.clear()
            else:
                self._tensors = parse_header(bytes(self._header), self._call.settings.max_items)
                self._next(self._tensors)
        return piece[count:]

    def _next(self, tensors: list[Tensor]) -> None:
        """Begin the next tensor that has bytes; those that have none are done at once."""
        while len(self._items) < len(tensors):
            self._missing = tensors[len(self._items)].nbytes
            if self._missing:
                return
            self._end(tensors)

    def _end(self, tensors: list[Tensor]) -> None:
        name, dtype, shape, nbytes = tensors[len(self._items)]
        digest = self._stream.digest()
        self._items.append(self._call.item(name, "tensor", dtype, shape, nbytes, digest))
        self._stream = AlignedHasher(self._call.algorithm)

    def _take_tensors(self, tensors: list[Tensor], piece: memoryview) -> None:
        while piece:
            if len(self._items) == len(tensors):
                raise Problem("damaged-safetensors")
            part, piece = piece[: self._missing], piece[self._missing :]
            self._stream.update(part)
            self._missing -= len(part)
            if not self._missing:
                self._end(tensors)
                self._next(tensors)


def parse_header(header: bytes, max_tensors: int) -> list[Tensor]:
    """The tensors in the order of their bytes: they lie without a hole from 0 to the end.

    One loop, in which each begins where the one before ended: no overlap, hole or overflow.
    """
    if not header.startswith(b"{") or header.count(b",") > MAX_COMMAS:
        raise Problem("invalid-safetensors-header")
    try:
        text = header.decode()
    except UnicodeDecodeError:  # it quotes the header, and causes are logged
        raise Problem("invalid-safetensors-header") from None
    try:
        entries = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise Problem("invalid-safetensors-header") from error
    _check_metadata(entries.pop("__metadata__", None))
    if len(entries) > max_tensors:
        raise Problem("too-many-items")
    placed = sorted(map(_place, entries.items()), key=lambda place: place[0])
    end = 0
    for (start, stop), tensor in placed:
        if start != end or stop - start != tensor.nbytes:
            raise Problem("invalid-safetensors-header")
        end = stop
    return [tensor for _, tensor in placed]


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _check_metadata(metadata: Any) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise Problem("invalid-safetensors-header")


def _place(entry: tuple[str, Any]) -> tuple[tuple[int, int], Tensor]:
    name, facts = entry
    if not isinstance(facts, dict) or facts.keys() != _FIELDS:
        raise Problem("invalid-safetensors-header")
    stored, shape, offsets = facts["dtype"], facts["shape"], facts["data_offsets"]
    if not _are_naturals(shape) or not _are_naturals(offsets) or len(offsets) != 2:
        raise Problem("invalid-safetensors-header")
    if not isinstance(stored, str) or stored not in DTYPES:
        raise Problem("unknown-dtype")
    if len(shape) > MAX_DIMS:
        raise Problem("invalid-shape")
    if stored == "F4":  # the file counts halves of a byte, torch counts bytes
        if not shape or shape[-1] % 2:
            raise Problem("invalid-safetensors-header")
        shape = [*shape[:-1], shape[-1] // 2]
    dtype = DTYPES[stored]
    start, stop = offsets
    return (start, stop), Tensor(name, dtype, tuple(shape), prod(shape) * ITEM_SIZE[dtype])


def _are_naturals(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < 1 << 63 for value in values
    )
