"""KV events of vLLM and SGLang, from MessagePack to values.

A batch is an array of time, events and rank. An event is a map, or an array in older releases:
vLLM's fields and SGLang's have the same names and the same order up to `medium`.
"""

from math import isfinite
from typing import Annotated, Any, NamedTuple, TypeVar

from msgspec import Meta, MsgspecError, Raw, Struct, msgpack

from mmhash.errors import InputValueError
from mmhash.kvindex.table import block_ids

T = TypeVar("T")

BlockId = int | bytes
"""The name of a block in events: 64 bits of its key as a number, or all of its bytes."""

# Far more than an engine stores in one step: 2**16 blocks of 16 tokens.
MAX_BYTES = 16 << 20
MAX_EVENTS = 1 << 16
MAX_BLOCKS = 1 << 18

_FIELDS = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
    ),
    "BlockRemoved": ("block_hashes", "medium"),
    "AllBlocksCleared": (),
}


class BlocksStored(NamedTuple):
    """Blocks that a cache has from now on, each behind the one before it."""

    ids: list[BlockId]
    parent: BlockId | None
    tokens: list[int]
    block_size: int
    medium: str | None
    lora: str | None
    # For each block the values that its key binds beside its tokens, if the release publishes them.
    extra_keys: list[Any] | None
    group: int | None


class BlocksRemoved(NamedTuple):
    """Blocks that a cache no longer has."""

    ids: list[BlockId]
    medium: str | None
    group: int | None


class CacheCleared(NamedTuple):
    """All blocks of a cache are gone."""


Event = BlocksStored | BlocksRemoved | CacheCleared


class Batch(NamedTuple):
    """The events of one step of an engine."""

    time: float
    events: list[Event]
    rank: int | None


def parse_batch(payload: bytes) -> Batch:
    """Return the batch that a message holds; anything else is an InputValueError."""
    if len(payload) > MAX_BYTES:
        raise InputValueError(f"a batch of KV events has at most {MAX_BYTES} bytes")
    try:
        content = msgpack.decode(payload)
    except (MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputValueError("a batch of KV events is MessagePack") from error
    if not isinstance(content, list) or len(content) not in {2, 3}:
        raise InputValueError("a batch of KV events is an array of time, events and rank")
    time, events, rank = [*content, None][:3]
    if not isinstance(events, list) or len(events) > MAX_EVENTS:
        raise InputValueError(f"a batch has a list of at most {MAX_EVENTS} events")
    return Batch(
        _checked(float(time) if type(time) is int else time, float, "time"),
        [_parse_event(event) for event in events],
        _optional(rank, int, "rank"),
    )


def _parse_event(content: Any) -> Event:
    fields = _fields(content)
    kind = fields.pop("type", None)
    group = _optional(fields.get("group_idx"), int, "group_idx")
    medium = _optional(fields.get("medium"), str, "medium")
    match kind:
        case "BlockStored":
            parent = fields.get("parent_block_hash")
            return BlocksStored(
                _ids(fields.get("block_hashes")),
                None if parent is None else _id(parent),
                _tokens(fields.get("token_ids")),
                _checked(fields.get("block_size"), int, "block_size"),
                medium,
                _optional(fields.get("lora_name"), str, "lora_name"),
                _optional(fields.get("extra_keys"), list, "extra_keys"),
                group,
            )
        case "BlockRemoved":
            return BlocksRemoved(_ids(fields.get("block_hashes")), medium, group)
        case "AllBlocksCleared":
            return CacheCleared()
    raise InputValueError("an event is BlockStored, BlockRemoved or AllBlocksCleared")


def _fields(content: Any) -> dict[Any, Any]:
    """Return an event's fields by name, from a map or from an array."""
    if isinstance(content, dict):
        return dict(content)
    if not isinstance(content, list) or not content or content[0] not in tuple(_FIELDS):
        raise InputValueError("an event is a map or an array that begins with its kind")
    kind, *values = content
    return {"type": kind, **dict(zip(_FIELDS[kind], values, strict=False))}


def _ids(values: Any) -> list[BlockId]:
    return [_id(value) for value in _checked(values, list, "block_hashes")]


def _id(value: Any) -> BlockId:
    if type(value) not in {int, bytes}:
        raise InputValueError("a block's hash is a number or bytes")
    return value  # type: ignore[no-any-return]


def _tokens(values: Any) -> list[int]:
    tokens: list[Any] = _checked(values, list, "token_ids")
    if set(map(type, tokens)) - {int}:
        raise InputValueError("token_ids are numbers")
    return tokens


def _checked(value: Any, kind: type[T], name: str) -> T:
    if type(value) is not kind:
        raise InputValueError(f"an event's {name} is of the wrong type")
    return value


def _optional(value: Any, kind: type[T], name: str) -> T | None:
    return None if value is None else _checked(value, kind, name)


Name = Annotated[str, Meta(max_length=256)]
"""The name of a tier, bounded because the index keeps it."""

BlockSize = Annotated[int, Meta(ge=0, le=1 << 16)]
"""The tokens of a block: a worker that names a large one would have most of every prompt."""

UnsignedIds = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=MAX_BLOCKS)]
"""The form in which the index has them: as vLLM publishes them, so most need no conversion."""

BlockIds = Annotated[list[BlockId], Meta(max_length=MAX_BLOCKS)]


class Stored(Struct, tag="BlockStored", gc=False):
    """Blocks that are in a tier from now on."""

    block_hashes: UnsignedIds
    block_size: BlockSize
    medium: Name | None = None
    group_idx: int | None = None
    # The store behind a shared tier: the same block may be in several.
    ownership: Name | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None

    @property
    def window(self) -> int | None:
        """The number of last blocks of a match that this group needs; None for all of them."""
        if self.kv_cache_spec_kind == "mamba":
            return 1
        tokens = self.kv_cache_spec_sliding_window
        if tokens is None or tokens < 1 or self.block_size < 1:
            return None
        return -(-(tokens - 1) // self.block_size)


class Removed(Struct, tag="BlockRemoved", gc=False):
    """Blocks that are no longer in a tier."""

    block_hashes: UnsignedIds
    medium: Name | None = None
    group_idx: int | None = None
    ownership: Name | None = None


class Cleared(Struct, tag="AllBlocksCleared", gc=False):
    """All blocks are gone, from all tiers."""


class Changes(Struct, array_like=True, gc=False):
    """A batch without the fields that only describe a block, such as its tokens."""

    time: float
    events: list[Stored | Removed | Cleared]
    rank: int | None = None


class _AnyStored(Stored, tag="BlockStored", kw_only=True, gc=False):
    """A `Stored` whose ids may be signed numbers or bytes."""

    block_hashes: BlockIds  # type: ignore[assignment]


class _AnyRemoved(Removed, tag="BlockRemoved", kw_only=True, gc=False):
    """A `Removed` whose ids may be signed numbers or bytes."""

    block_hashes: BlockIds  # type: ignore[assignment]


class _AnyChanges(Struct, array_like=True, gc=False):
    """A `Changes` whose ids may be signed numbers or bytes."""

    time: float
    events: list[_AnyStored | _AnyRemoved | Cleared]
    rank: int | None = None


class _StoredArray(Struct, tag="BlockStored", array_like=True, gc=False):
    """An older release's `Stored`."""

    block_hashes: BlockIds
    parent: Raw
    tokens: Raw
    block_size: BlockSize
    lora: Raw = Raw()
    medium: Name | None = None


class _RemovedArray(Struct, tag="BlockRemoved", array_like=True, gc=False):
    """An older release's `Removed`."""

    block_hashes: BlockIds
    medium: Name | None = None


class _ClearedArray(Struct, tag="AllBlocksCleared", array_like=True, gc=False):
    """An older release's `Cleared`."""


class _ArrayChanges(Struct, array_like=True, gc=False):
    """An older release's `Changes`."""

    time: float
    events: list[_StoredArray | _RemovedArray | _ClearedArray]
    rank: int | None = None


_CHANGES = msgpack.Decoder(Changes)
_ANY_CHANGES = msgpack.Decoder(_AnyChanges)
_ARRAY_CHANGES = msgpack.Decoder(_ArrayChanges)


def parse_changes(payload: bytes) -> Changes:
    """Return which blocks a batch adds and removes; anything else is an InputValueError.

    It skips all other fields in C: a batch takes a tenth of the time of `parse_batch`. A first
    parse refuses ids below 0 and bytes: to look at the ids in Python takes 0.2 to 1.4 µs an event.
    """
    if len(payload) > MAX_BYTES:
        raise InputValueError(f"a batch of KV events has at most {MAX_BYTES} bytes")
    try:
        changes = _CHANGES.decode(payload)
    except (MsgspecError, RecursionError, UnicodeDecodeError) as error:
        changes = _parse_others(payload, error)
    if len(changes.events) > MAX_EVENTS:
        raise InputValueError(f"a batch has a list of at most {MAX_EVENTS} events")
    if sum(len(one.block_hashes) for one in changes.events if not isinstance(one, Cleared)) > (
        MAX_BLOCKS
    ):
        raise InputValueError(f"the events of a batch have at most {MAX_BLOCKS} blocks")
    if not isfinite(changes.time):
        raise InputValueError("the time of a batch is a finite number")
    return changes


def _parse_others(payload: bytes, reason: Exception) -> Changes:
    """Return a batch with signed numbers or bytes as ids, or one of an older release."""
    try:
        batch: _AnyChanges | _ArrayChanges = _ANY_CHANGES.decode(payload)
    except (MsgspecError, RecursionError, UnicodeDecodeError):
        batch = _parse_arrays(payload, reason)
    events: list[Stored | Removed | Cleared] = []
    for event in batch.events:
        match event:
            case Stored() | Removed():
                event.block_hashes = block_ids(event.block_hashes)  # type: ignore[assignment]
                events.append(event)
            case _StoredArray():
                ids = block_ids(event.block_hashes)
                events.append(Stored(ids, event.block_size, event.medium))
            case _RemovedArray():
                events.append(Removed(block_ids(event.block_hashes), event.medium))
            case _:
                events.append(Cleared())
    return Changes(batch.time, events, batch.rank)


def _parse_arrays(payload: bytes, reason: Exception) -> _ArrayChanges:
    try:
        return _ARRAY_CHANGES.decode(payload)
    except (MsgspecError, RecursionError, UnicodeDecodeError):
        raise InputValueError(f"not a batch of KV events: {reason}") from reason
