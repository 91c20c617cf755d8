"""Safetensors bodies: one item for each tensor, hashed while it is received and never held.

The header is validated first, by the rules of the safetensors package.
"""

import json
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from mmhash.dtypes import ITEM_SIZE
from mmhash.io.safetensors import DTYPES, HEADER_LENGTH_SIZE
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas.items import Item
from mmhash_service.bodies.parsing import MAX_DIMS
from mmhash_service.bodies.stream import AlignedHasher
from mmhash_service.runtime.concurrency import end_turn
from mmhash_service.runtime.context import RequestContext

if TYPE_CHECKING:
    from mmhash import Digest

MAX_HEADER = 1 << 20
# A header is parsed on the event loop: 3 µs for a tensor, 1 µs for a bracket, 0.6 µs for a comma
# between names. `max_tensors` tensors of seven dimensions fit. 1 MB of brackets took 290 ms. The
# 1000 tensors of the default take 3 ms; with a higher `max_items`, 9900 fit, in 39 ms. In a thread
# they would need a body that pauses, or a buffer for what follows: `take` cannot wait.
_MAX_COMMAS = 40_000
_MIN_TENSORS = 1000  # even if fewer are allowed, so that more of them get the problem for it
# Of 63 bits; a number of 4300 digits takes 0.1 ms.
_MAX_DIGITS = 19

_FIELDS = {"dtype", "shape", "data_offsets"}


class Tensor(NamedTuple):
    """One tensor of the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class SafetensorsReader:
    """A reader of a safetensors file: of its header, then of one tensor after another."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._header = bytearray()
        self._header_length: int | None = None
        self._tensors: list[Tensor] | None = None
        self._digests: list[Digest] = []
        self._hasher = AlignedHasher(context.algorithm)
        self._missing = 0

    def take(self, piece: bytes | memoryview, /) -> None:
        """Parse the next piece of the header, or hash the next piece of the tensors."""
        rest = memoryview(piece)
        while self._tensors is None and rest:
            rest = self._take_header(rest)
        if self._tensors is not None:
            self._take_tensors(self._tensors, rest)

    async def finish(self) -> list[Item]:
        """Return the items, in the order of their bytes."""
        if self._tensors is None or len(self._digests) != len(self._tensors):
            raise Problem("damaged-safetensors")
        tensors = zip(self._tensors, self._digests, strict=True)
        items: list[Item] = []
        for (name, dtype, shape, nbytes), digest in tensors:
            items.append(self._context.item(name, "tensor", dtype, shape, nbytes, digest))
            await end_turn(len(items))
        return items

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
                self._tensors = parse_header(bytes(self._header), self._context.settings.max_items)
                # The body, or the part of a form, is counted as one item already.
                self._context.admission.count_items(max(0, len(self._tensors) - 1))
                self._begin_tensor(self._tensors)
        return piece[count:]

    def _begin_tensor(self, tensors: list[Tensor]) -> None:
        """Begin the next tensor that has bytes, and end the empty ones before it."""
        while len(self._digests) < len(tensors):
            self._missing = tensors[len(self._digests)].nbytes
            if self._missing:
                return
            self._end_tensor()

    def _end_tensor(self) -> None:
        self._digests.append(self._hasher.digest())
        self._hasher = AlignedHasher(self._context.algorithm)

    def _take_tensors(self, tensors: list[Tensor], piece: memoryview) -> None:
        while piece:
            if len(self._digests) == len(tensors):
                raise Problem("damaged-safetensors")
            part, piece = piece[: self._missing], piece[self._missing :]
            self._hasher.update(part)
            self._missing -= len(part)
            if not self._missing:
                self._end_tensor()
                self._begin_tensor(tensors)


def parse_header(header: bytes, max_tensors: int) -> list[Tensor]:
    """Return the tensors, in the order of their bytes.

    Each must begin where the one before ends, so there is no gap, overlap or overflow.
    """
    tensors = max(max_tensors, _MIN_TENSORS)
    if (
        not header.startswith(b"{")
        or header.count(b"{") + header.count(b"[") > 3 * (tensors + 1)
        or header.count(b",") > min(_MAX_COMMAS, 10 * (tensors + 1))
    ):
        raise Problem("invalid-safetensors-header")
    try:
        text = header.decode()
    except UnicodeDecodeError:  # the error quotes the header, and causes are logged
        raise Problem("invalid-safetensors-header") from None
    try:
        entries = json.loads(
            text,
            object_pairs_hook=_refuse_duplicates,
            parse_int=_parse_natural,
            parse_float=_parse_natural,
        )
    except (ValueError, RecursionError) as error:
        raise Problem("invalid-safetensors-header") from error
    _check_metadata(entries.pop("__metadata__", None))
    if len(entries) > max_tensors:
        raise Problem("too-many-items")
    placed = sorted(map(_parse_entry, entries.items()), key=itemgetter(0))
    end = 0
    for (start, stop), tensor in placed:
        if start != end or stop - start != tensor.nbytes:
            raise Problem("invalid-safetensors-header")
        end = stop
    return [tensor for _, tensor in placed]


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name is repeated")
    return result


def _parse_natural(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError("the number is too large")
    return int(text)


def _check_metadata(metadata: Any) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise Problem("invalid-safetensors-header")


def _parse_entry(entry: tuple[str, Any]) -> tuple[tuple[int, int], Tensor]:
    """Return the offsets of one tensor, and the tensor."""
    name, fields = entry
    if not isinstance(fields, dict) or fields.keys() != _FIELDS:
        raise Problem("invalid-safetensors-header")
    stored, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not _are_naturals(shape) or not _are_naturals(offsets) or len(offsets) != 2:
        raise Problem("invalid-safetensors-header")
    if not isinstance(stored, str) or stored not in DTYPES:
        raise Problem("unknown-dtype")
    if len(shape) > MAX_DIMS:
        raise Problem("invalid-shape")
    if stored == "F4":  # its shape counts elements of 4 bits, torch counts pairs of them
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
