"""KV events of vLLM and SGLang, parsed in C.

A batch is an array of time, events and rank. An event is a map, or an array in older releases. vLLM
and SGLang use the same field names in the same order up to `medium`. Fields that only describe a
block, such as its tokens, stay encoded, because the index never reads them. The index does not read
the tier either: a copy in any tier saves computing the block.
"""

from functools import lru_cache
from math import isfinite
from typing import Annotated, Any

from msgspec import Meta, MsgspecError, Raw, Struct, defstruct, field, msgpack

from mmhash.errors import InputTypeError, InputValueError
from mmhash.kvindex.table import Layout, block_id, block_ids

# Far more blocks than an engine stores in one step: 2**16 blocks of 16 tokens.
MAX_BYTES = 16 << 20
MAX_EVENTS = 1 << 16
MAX_BLOCKS = 1 << 18

BlockSize = Annotated[int, Meta(ge=0, le=1 << 16)]
"""The tokens of a block.

The bound matters: with huge blocks a worker would seem to hold any prompt.
"""

UnsignedIds = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=MAX_BLOCKS)]
"""Block ids in the form that vLLM publishes and the index stores, so most need no conversion."""

AnyIds = Annotated[list[int | bytes], Meta(max_length=MAX_BLOCKS)]

_NIL = Raw(b"\xc0")


@lru_cache(maxsize=256)  # nearly all events of a worker have the same size
def _layout(block_size: int, kind: str | None, window: int | None) -> Layout:
    size = max(1, block_size)  # vLLM's partial blocks are smaller, and its placeholders are 0
    if kind == "mamba":
        return Layout(size, 1, is_state=True)
    if window is None or window < 1:
        return Layout(size)
    return Layout(size, max(1, -(-(window - 1) // size)))


class BlocksStored(Struct, tag="BlockStored", gc=False):
    """Blocks that a tier has stored; each block follows the one before it."""

    ids: UnsignedIds = field(name="block_hashes")
    block_size: BlockSize
    group: int | None = field(default=None, name="group_idx")
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    raw_parent: Raw = field(default=_NIL, name="parent_block_hash")
    raw_tokens: Raw = field(default=_NIL, name="token_ids")
    raw_extra_keys: Raw = field(default=_NIL, name="extra_keys")

    @property
    def layout(self) -> Layout:
        """How the group stores prompts, as far as the event says."""
        return _layout(self.block_size, self.kv_cache_spec_kind, self.kv_cache_spec_sliding_window)

    @property
    def parent(self) -> int | None:
        """The block before these blocks, or None at the start of a prompt."""
        parent: int | bytes | None = _decoded(self.raw_parent, int | bytes | None)
        return None if parent is None else block_id(parent)

    @property
    def tokens(self) -> list[int]:
        """The tokens of all blocks."""
        tokens: list[int] = _decoded(self.raw_tokens, list[int])
        return tokens

    @property
    def extra_keys(self) -> list[Any] | None:
        """For each block, what its key binds beside its tokens, if the engine publishes that."""
        extra_keys: list[Any] | None = _decoded(self.raw_extra_keys, list[Any] | None)
        return extra_keys


class BlocksRemoved(Struct, tag="BlockRemoved", gc=False):
    """Blocks that a tier has removed."""

    ids: UnsignedIds = field(name="block_hashes")
    group: int | None = field(default=None, name="group_idx")


class CacheCleared(Struct, tag="AllBlocksCleared", gc=False):
    """All blocks have left all tiers."""


Event = BlocksStored | BlocksRemoved | CacheCleared


class Batch(Struct, array_like=True, gc=False):
    """The events of one step of an engine."""

    time: float
    events: list[Event]
    rank: int | None = None


def _with_any_ids(event: type[Struct]) -> Any:
    """Return an event whose ids may be signed numbers or bytes."""
    ids = ("ids", AnyIds, field(name="block_hashes"))
    tag = event.__struct_config__.tag
    return defstruct(event.__name__, [ids], bases=(event,), tag=tag, kw_only=True, gc=False)


_ANY_EVENT: Any = _with_any_ids(BlocksStored) | _with_any_ids(BlocksRemoved) | CacheCleared


class _StoredArray(Struct, tag="BlockStored", array_like=True, gc=False):
    """The stored blocks of an older release."""

    ids: AnyIds
    parent: Raw
    tokens: Raw
    block_size: BlockSize
    lora: Raw = _NIL
    medium: Raw = _NIL
    lora_name: Raw = _NIL
    extra_keys: Raw = _NIL

    def as_event(self) -> BlocksStored:
        return BlocksStored(
            block_ids(self.ids),
            self.block_size,
            raw_parent=self.parent,
            raw_tokens=self.tokens,
            raw_extra_keys=self.extra_keys,
        )


class _RemovedArray(Struct, tag="BlockRemoved", array_like=True, gc=False):
    """The removed blocks of an older release."""

    ids: AnyIds

    def as_event(self) -> BlocksRemoved:
        return BlocksRemoved(block_ids(self.ids))


class _ClearedArray(Struct, tag="AllBlocksCleared", array_like=True, gc=False):
    """The cleared cache of an older release."""

    def as_event(self) -> CacheCleared:
        return CacheCleared()


class _ArrayBatch(Struct, array_like=True, gc=False):
    """The batch of an older release."""

    time: float
    events: list[_StoredArray | _RemovedArray | _ClearedArray]
    rank: int | None = None


_BATCH = msgpack.Decoder(Batch)
_ANY_BATCH: Any = msgpack.Decoder(
    defstruct(
        "Batch",
        [("time", float), ("events", list[_ANY_EVENT]), ("rank", int | None, None)],
        array_like=True,
    )
)
_ARRAY_BATCH = msgpack.Decoder(_ArrayBatch)
_ERRORS = MsgspecError, RecursionError, UnicodeDecodeError


def parse_batch(payload: bytes) -> Batch:
    """Return the batch in a message; raise InputValueError if there is none."""
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise InputTypeError(f"payload must be bytes, not {type(payload).__name__}")
    if len(payload) > MAX_BYTES:
        raise InputValueError(f"a batch of KV events must have at most {MAX_BYTES} bytes")
    try:
        batch = _BATCH.decode(payload)
    except _ERRORS as error:
        batch = _parse_others(payload, error)
    if len(batch.events) > MAX_EVENTS:
        raise InputValueError(f"a batch must have a list of at most {MAX_EVENTS} events")
    if sum(len(one.ids) for one in batch.events if not isinstance(one, CacheCleared)) > MAX_BLOCKS:
        raise InputValueError(f"the events of a batch must have at most {MAX_BLOCKS} blocks")
    if not isfinite(batch.time):
        raise InputValueError("the time of a batch must be a finite number")
    return batch


def _parse_others(payload: bytes, reason: Exception) -> Batch:
    """Return a batch from an older release, or with signed numbers or bytes as ids."""
    try:
        batch = _ANY_BATCH.decode(payload)
        events: list[Event] = batch.events
    except _ERRORS:
        try:
            batch = _ARRAY_BATCH.decode(payload)
        except _ERRORS:
            raise InputValueError(f"not a batch of KV events: {reason}") from reason
        return Batch(batch.time, [one.as_event() for one in batch.events], batch.rank)
    for event in events:
        if not isinstance(event, CacheCleared):
            event.ids = block_ids(event.ids)
    return Batch(batch.time, events, batch.rank)


def _decoded(raw: Raw, kind: Any) -> Any:
    try:
        return msgpack.decode(raw, type=kind)
    except _ERRORS as error:
        raise InputValueError(f"a field of a KV event has the wrong type: {error}") from error
