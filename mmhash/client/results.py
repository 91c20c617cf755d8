"""The results of calls, parsed from responses and checked against their requests."""

from collections.abc import Mapping
from typing import Annotated as Constrained
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from mmhash.client.exchange import malformed
from mmhash.digest import Algorithm, Digest
from mmhash.engines.engine import Span
from mmhash.errors import InputError, ServiceError

T = TypeVar("T")

ItemKind = Literal["bytes", "tensor", "image", "list", "video", "audio"]
"""The kind of an item; a clip by its source is a video or audio."""
_Number = Constrained[int, Meta(ge=0, le=(1 << 63) - 1)]
# A block's key has at most 512 bits.
_Hex = Constrained[str, Meta(pattern=r"\A(?:[0-9a-f]{2}){8,64}\Z")]


class Item(Struct, frozen=True):
    """One item: kind, dtype, shape, the digest of its `nbytes` bytes, its key, engines' fields.

    `memo` is the status of the service's cache, `tag` its signature; both may be None. The fields
    of engines that apply EXIF orientation cover that of an image by its pixels; the key does not.
    `frames` are the keys of the frames or windows of a clip that was decoded.
    """

    name: str | None
    kind: ItemKind
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: Digest
    key: Digest
    engines: Mapping[str, Mapping[str, Any]]
    memo: Literal["hit", "miss"] | None
    tag: str | None
    exif_orientation: int = 1
    frames: tuple[Digest, ...] = ()


class Annotated(NamedTuple):
    """A request with its items' keys inserted, ready to forward, and the items in their order."""

    request: dict[str, Any]
    items: list[Item]


class PlannedPrompt(Struct, frozen=True):
    """A prompt as the engine will see it, and the request with the hashes of its items.

    `items` has what docs/http.md lists for `POST /plan`: each item's key, size and place. `recipe`
    is the release that the service used in place of an unknown one.
    """

    token_ids: list[int]
    items: list[dict[str, Any]]
    spans: list[Span]
    blocks: list[str]
    event_ids: list[int]
    request: dict[str, Any]
    recipe: str | None = None


class Blocks(Struct, frozen=True):
    """The keys of a prompt's blocks, in hex, and their ids in the engine's KV events.

    `groups` has the same for each size in the request. `recipe` is the release that the service
    used in place of an unknown one.
    """

    blocks: list[str]
    event_ids: list[int]
    groups: "dict[int, Blocks] | None" = None
    recipe: str | None = None


class ExpectedItem(NamedTuple):
    """The properties that an item of a response must have; None for those not known before."""

    algorithm: Algorithm
    engines: frozenset[str]
    kind: ItemKind | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    nbytes: int | None = None


class _JsonItem(Struct):
    kind: ItemKind
    dtype: str
    shape: Constrained[tuple[_Number, ...], Meta(max_length=64)]
    nbytes: _Number
    algorithm: Algorithm
    digest: _Hex
    key: _Hex
    name: str | None = None
    engines: dict[str, dict[str, Any]] = {}
    memo: Literal["hit", "miss"] | None = None
    tag: str | None = None
    exif_orientation: Constrained[int, Meta(ge=1, le=8)] = 1
    frames: tuple[_Hex, ...] | None = None


class _Hashed(Struct):
    items: list[_JsonItem]


class _JsonAnnotated(Struct):
    request: dict[str, Any]
    items: list[_JsonItem]


class _Padded(Struct):
    input_ids: list[int]


class _Group(Struct):
    block_size: int
    blocks: list[_Hex]
    event_ids: list[int]


class _JsonBlocks(Struct):
    blocks: list[_Hex]
    event_ids: list[int]
    groups: list[_Group] | None = None
    recipe: str | None = None


class _Span(Struct):
    start: _Number
    end: _Number
    key: _Hex


class _JsonPlan(Struct):
    token_ids: list[int]
    items: list[dict[str, Any]]
    spans: list[_Span]
    blocks: list[_Hex]
    event_ids: list[int]
    request: dict[str, Any]
    recipe: str | None = None


class _Info(Struct):
    in_place: list[str]


def read_items(body: bytes, expected: list[ExpectedItem]) -> list[Item]:
    """Read the response to `POST /hash`: an item for each expected one."""
    items = _decode(body, _Hashed).items
    if len(items) != len(expected):
        malformed(f"it has {len(items)} items, not {len(expected)}")
    return [_item(*pair) for pair in zip(items, expected, strict=True)]


def read_annotated(body: bytes, expected: ExpectedItem) -> Annotated:
    """Read the response to `POST /annotate`."""
    answer = _decode(body, _JsonAnnotated)
    return Annotated(answer.request, [_item(item, expected) for item in answer.items])


def read_plan(body: bytes) -> PlannedPrompt:
    """Read the response to `POST /plan`."""
    plan = _decode(body, _JsonPlan)
    _check_event_ids(plan)
    return PlannedPrompt(
        plan.token_ids,
        plan.items,
        [Span(span.start, span.end, _digest("blake3", span.key)) for span in plan.spans],
        plan.blocks,
        plan.event_ids,
        plan.request,
        plan.recipe,
    )


def read_padded(body: bytes, count: int) -> list[int]:
    """Read the response to `POST /pad`: as many ids as the request has."""
    ids = _decode(body, _Padded).input_ids
    if len(ids) != count:
        malformed(f"it has {len(ids)} ids, not {count}")
    return ids


def read_blocks(body: bytes, sizes: list[int] | None) -> Blocks:
    """Read the response to `POST /blocks`: its groups are those of the sizes."""
    answer = _decode(body, _JsonBlocks)
    for part in (answer, *(answer.groups or ())):
        _check_event_ids(part)
    if sizes is None:
        return Blocks(answer.blocks, answer.event_ids, None, answer.recipe)
    if [group.block_size for group in answer.groups or ()] != sizes:
        malformed("its groups are not those of the request")
    groups = {one.block_size: Blocks(one.blocks, one.event_ids) for one in answer.groups or ()}
    return Blocks(answer.blocks, answer.event_ids, groups, answer.recipe)


def read_info(body: bytes) -> dict[str, Any]:
    """Read the response to `GET /info`."""
    _decode(body, _Info)
    return _decode(body, dict[str, Any])


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        malformed(str(error))
    except (msgspec.DecodeError, RecursionError):
        detail = "the response is not JSON: is this another server?"
        raise ServiceError(detail, status=200) from None


def _digest(algorithm: Algorithm, text: str) -> Digest:
    try:
        return Digest(algorithm, bytes.fromhex(text))
    except InputError as error:  # it has another length
        malformed(str(error))


def _item(item: _JsonItem, expected: ExpectedItem) -> Item:
    for name in ("algorithm", "kind", "dtype", "shape", "nbytes"):
        value, right = getattr(item, name), getattr(expected, name)
        if right not in {None, value}:
            malformed(f"an item has the {name} {ascii(value)[:80]}, not {right!r}")
    if not item.engines.keys() <= expected.engines:
        names = ", ".join(sorted(expected.engines)) or "none"
        malformed(f"an item's 'engines' are not those requested: {names}")
    return Item(
        item.name,
        item.kind,
        item.dtype,
        item.shape,
        item.nbytes,
        _digest(item.algorithm, item.digest),
        _digest("blake3", item.key),
        item.engines,
        item.memo,
        item.tag,
        item.exif_orientation,
        tuple(_digest("blake3", frame) for frame in item.frames or ()),
    )


def _check_event_ids(answer: _JsonPlan | _JsonBlocks | _Group) -> None:
    if len(answer.event_ids) != len(answer.blocks):
        malformed("its 'event_ids' are not one for each block")
