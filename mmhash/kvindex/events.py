"""KV events of vLLM and SGLang, from MessagePack to values.

A batch is an array of time, events and rank. An event is a map, or an array in older releases:
vLLM's fields and SGLang's have the same names and the same order up to `medium`.
"""

from typing import Any, NamedTuple, TypeVar

from msgspec import MsgspecError, msgpack

from mmhash.errors import InputTypeError, InputValueError

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
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise InputTypeError(f"payload is bytes, not {type(payload).__name__}")
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
