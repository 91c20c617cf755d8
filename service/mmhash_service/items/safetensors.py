"""Reads safetensors: each tensor is an item, hashed on arrival and never held.

The header is validated first, by the rules of the safetensors package.
"""

from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder

from mmhash.dtypes import ITEM_SIZE
from mmhash.io.safetensors import DTYPES, HEADER_LENGTH_SIZE
from mmhash.requests.raw_json import PARSE_ERRORS
from mmhash_service.bodies.parsing import MAX_DIMS
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.readers import AlignedHasher
from mmhash_service.limits.capacity import MAX_ITEMS
from mmhash_service.problems.problem import Problem, shown

if TYPE_CHECKING:
    from mmhash import Digest

MAX_HEADER = 1 << 20
# `take` cannot wait for a thread, so it parses the header on the event loop, and these limits bound
# the work. They admit twice as many tensors as a body may have, so that a few tensors too many are
# refused as such and not as a damaged header.
_MAX_BRACKETS = 3 * 2 * MAX_ITEMS
_MAX_COMMAS = 10 * 2 * MAX_ITEMS

# How long framing the digest of one tensor takes.
_FRAME_US = 10

_Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class _Entry(Struct, gc=False):  # faster for thousands of tensors
    """A tensor as the header spells it."""

    dtype: str
    shape: tuple[_Natural, ...]
    data_offsets: tuple[_Natural, _Natural]


# The name of a tensor, the names of its fields, and its dtype.
_STRINGS_OF_ENTRY = 5

_HEADER = Decoder(dict[str, Raw])
_ENTRY = Decoder(_Entry)
_METADATA = Decoder(dict[str, str] | None)


class Tensor(NamedTuple):
    """A tensor of the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class SafetensorsReader:
    """Reads a safetensors file: the header, then one tensor after another."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._header = bytearray()
        self._header_length: int | None = None
        self._tensors: list[Tensor] | None = None
        self._digests: list[Digest] = []
        self._of_no_bytes = AlignedHasher(context.algorithm).digest()
        self._hasher: AlignedHasher
        self._missing = 0

    def take(self, piece: bytes | memoryview, /) -> None:
        """Parse the next piece of the header, or hash the next piece of the tensors."""
        rest = memoryview(piece)
        while self._tensors is None and rest:
            rest = self._take_header(rest)
        if self._tensors is not None:
            self._take_tensors(self._tensors, rest)

    async def finish(self) -> list[HashedItem]:
        """Return the items in the order of their bytes."""
        if self._tensors is None:
            raise _damaged("the body ends within its header")
        if len(self._digests) != len(self._tensors):
            name = self._tensors[len(self._digests)].name
            raise _damaged(f"the body ends within the tensor {shown(name)}")
        cost_us = _FRAME_US * len(self._tensors)
        return await self._context.work.run_sized(cost_us, self._items, self._tensors)

    def _items(self, tensors: list[Tensor]) -> list[HashedItem]:
        return [
            self._context.item(name, "tensor", dtype, shape, nbytes, digest)
            for (name, dtype, shape, nbytes), digest in zip(tensors, self._digests, strict=True)
        ]

    def _take_header(self, piece: memoryview) -> memoryview:
        wanted = HEADER_LENGTH_SIZE if self._header_length is None else self._header_length
        count = wanted - len(self._header)
        self._header += piece[:count]
        if len(self._header) == wanted:
            if self._header_length is None:
                self._header_length = int.from_bytes(self._header, "little")
                if not 2 <= self._header_length <= MAX_HEADER:
                    reason = f"by its first 8 bytes, the header has {self._header_length} bytes"
                    raise _damaged(f"{reason}, not 2 to {MAX_HEADER}")
                self._header.clear()
            else:
                self._tensors = parse_header(bytes(self._header))
                # The body, or this part of a form, already counts as one.
                self._context.admission.count_items(max(0, len(self._tensors) - 1))
                self._begin_tensor(self._tensors)
        return piece[count:]

    def _begin_tensor(self, tensors: list[Tensor]) -> None:
        """Begin the next tensor that has bytes. Empty tensors before it share a digest."""
        self._hasher = AlignedHasher(self._context.algorithm)
        while len(self._digests) < len(tensors):
            self._missing = tensors[len(self._digests)].nbytes
            if self._missing:
                return
            self._digests.append(self._of_no_bytes)

    def _take_tensors(self, tensors: list[Tensor], piece: memoryview) -> None:
        while piece:
            if len(self._digests) == len(tensors):
                raise _damaged("the body continues after the last tensor")
            part, piece = piece[: self._missing], piece[self._missing :]
            self._hasher.update(part)
            self._missing -= len(part)
            if not self._missing:
                self._digests.append(self._hasher.digest())
                self._begin_tensor(tensors)


def parse_header(header: bytes) -> list[Tensor]:
    """Return the tensors in the order of their bytes.

    Each must begin where the previous tensor ends, without a gap or overlap.
    """
    if (
        not header.startswith(b"{")
        or header.count(b"{") + header.count(b"[") > _MAX_BRACKETS
        or header.count(b",") > _MAX_COMMAS
    ):
        raise _damaged(f"the header is not an object, or has more than {2 * MAX_ITEMS} tensors")
    placed = sorted(_parse_entries(header), key=itemgetter(0))
    end = 0
    for (start, stop), tensor in placed:
        if start != end or stop - start != tensor.nbytes:
            place = f"the tensor {shown(tensor.name)} is placed at {start} to {stop}"
            raise _damaged(f"{place}, and belongs at {end} to {end + tensor.nbytes}")
        end = stop
    return [tensor for _, tensor in placed]


def _parse_entries(header: bytes) -> list[tuple[tuple[int, int], Tensor]]:
    """Return each tensor with its offsets."""
    try:
        texts = _HEADER.decode(header)
        strings = 0
        if (text := texts.pop("__metadata__", None)) is not None:
            strings += 1 + 2 * len(_METADATA.decode(text) or ())
        if len(texts) > MAX_ITEMS:
            reason = f"there are {len(texts)} tensors; at most {MAX_ITEMS} items are accepted"
            raise Problem("too-many-items", reason=reason)
        entries = [_ENTRY.decode(text) for text in texts.values()]
    except PARSE_ERRORS as error:
        raise _damaged("a tensor in the header lacks dtype, shape or data_offsets") from error
    # The parser skips unknown fields, and all but the last of equal names. The text still has them.
    if _count_strings(header) != strings + _STRINGS_OF_ENTRY * len(entries):
        raise _damaged("the header has two tensors of one name, or an unknown field")
    return [
        (entry.data_offsets, _tensor(name, entry))
        for name, entry in zip(texts, entries, strict=True)
    ]


def _count_strings(text: bytes) -> int:
    """Return the number of strings in valid JSON: half the number of unescaped quotes."""
    quotes = text.count(b'"')
    if b"\\" in text:
        quotes -= text.replace(rb"\\", b"").count(rb"\"")
    return quotes // 2


def _damaged(reason: str) -> Problem:
    return Problem("damaged-safetensors", reason=reason)


def _tensor(name: str, entry: _Entry) -> Tensor:
    shape = entry.shape
    if entry.dtype not in DTYPES:
        reason = f"the tensor {shown(name)} has the dtype {shown(entry.dtype)}"
        raise Problem("invalid-tensor", reason=f"{reason}: choose one of {', '.join(DTYPES)}")
    if len(shape) > MAX_DIMS:
        reason = (
            f"the tensor {shown(name)} has {len(shape)} dimensions: at most {MAX_DIMS} are accepted"
        )
        raise Problem("invalid-tensor", reason=reason)
    if entry.dtype == "F4":  # the header counts elements of 4 bits, torch counts pairs
        if not shape or shape[-1] % 2:
            raise _damaged(f"the F4 tensor {shown(name)} has an odd last dimension")
        shape = (*shape[:-1], shape[-1] // 2)
    dtype = DTYPES[entry.dtype]
    return Tensor(name, dtype, shape, prod(shape) * ITEM_SIZE[dtype])
