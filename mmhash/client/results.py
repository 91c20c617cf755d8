"""The results of calls, parsed from responses."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from mmhash.digest import Algorithm, Digest
from mmhash.engines.engine import Span
from mmhash.errors import ServiceError
from mmhash.view import Kind

T = TypeVar("T")


class Item(Struct, frozen=True):
    """An item: kind, dtype, shape, the digest of its `nbytes` bytes, its key and engine fields.

    `memo` is the status of the service's cache and `tag` is the signature; both may be None. For an
    image hashed by its pixels, `engines` covers the EXIF orientation where the engine applies it;
    the key does not.
    """

    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: Digest
    key: Digest
    name: str | None = None
    engines: Mapping[str, Mapping[str, Any]] = {}
    memo: Literal["hit", "miss"] | None = None
    tag: str | None = None
    exif_orientation: int = 1


class Annotated(NamedTuple):
    """A request with the keys of its items inserted, ready to forward, and the items in order."""

    request: dict[str, Any]
    items: list[Item]


class PlannedPrompt(Struct, frozen=True):
    """A prompt as the engine will see it, and the request with the hashes of its items.

    `items` has the members that docs/http.md lists for `POST /plan`: key, size and place. `recipe`
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

    `recipe` is the release that the service used in place of an unknown one.
    """

    blocks: list[str]
    event_ids: list[int]
    recipe: str | None = None


class _Item(Struct):
    """An item as JSON spells it: digests are hex."""

    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    algorithm: Algorithm
    digest: str
    key: str
    name: str | None = None
    engines: dict[str, dict[str, Any]] = {}
    memo: Literal["hit", "miss"] | None = None
    tag: str | None = None
    exif_orientation: int = 1

    def parsed(self) -> Item:
        return Item(
            self.kind,
            self.dtype,
            self.shape,
            self.nbytes,
            Digest.fromhex(self.digest, algorithm=self.algorithm),
            Digest.fromhex(self.key),
            self.name,
            self.engines,
            self.memo,
            self.tag,
            self.exif_orientation,
        )


class _Hashed(Struct):
    items: list[_Item]


class _Annotated(Struct):
    request: dict[str, Any]
    items: list[_Item]


class _Span(Struct):
    start: int
    end: int
    key: str


class _Plan(Struct):
    token_ids: list[int]
    items: list[dict[str, Any]]
    spans: list[_Span]
    blocks: list[str]
    event_ids: list[int]
    request: dict[str, Any]
    recipe: str | None = None


class _Padded(Struct):
    input_ids: list[int]


def read_items(body: bytes) -> list[Item]:
    """Read the response to `POST /hash`."""
    return [item.parsed() for item in _decode(body, _Hashed).items]


def read_annotated(body: bytes) -> Annotated:
    """Read the response to `POST /annotate`."""
    answer = _decode(body, _Annotated)
    return Annotated(answer.request, [item.parsed() for item in answer.items])


def read_plan(body: bytes) -> PlannedPrompt:
    """Read the response to `POST /plan`."""
    plan = _decode(body, _Plan)
    spans = [Span(span.start, span.end, Digest.fromhex(span.key)) for span in plan.spans]
    fields = plan.token_ids, plan.items, spans, plan.blocks, plan.event_ids, plan.request
    return PlannedPrompt(*fields, plan.recipe)


def read_padded(body: bytes) -> list[int]:
    """Read the response to `POST /pad`."""
    return _decode(body, _Padded).input_ids


def read_blocks(body: bytes) -> Blocks:
    """Read the response to `POST /blocks`."""
    return _decode(body, Blocks)


def read_info(body: bytes) -> dict[str, Any]:
    """Read the response to `GET /info`."""
    return _decode(body, dict[str, Any])


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise ServiceError(
            f"the response is not JSON of this service: is this another server? {error}",
            status=200,
        ) from None
