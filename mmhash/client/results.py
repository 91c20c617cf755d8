"""The results of calls, parsed from responses."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, field

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
    algorithm: Algorithm
    digest_hex: str = field(name="digest")
    key_hex: str = field(name="key")
    name: str | None = None
    engines: Mapping[str, Mapping[str, Any]] = {}
    memo: Literal["hit", "miss"] | None = None
    tag: str | None = None
    exif_orientation: int = 1

    @property
    def digest(self) -> Digest:
        """The digest of the item's bytes."""
        return Digest.fromhex(self.digest_hex, algorithm=self.algorithm)

    @property
    def key(self) -> Digest:
        """The key of the item."""
        return Digest.fromhex(self.key_hex)


class Annotated(NamedTuple):
    """A request with the keys of its items inserted, ready to forward, and the items in order."""

    request: dict[str, Any]
    items: list[Item]


class _PlannedSpan(Struct, frozen=True):
    start: int
    end: int
    key: str


class PlannedPrompt(Struct, frozen=True):
    """A prompt as the engine will see it, and the request with the hashes of its items.

    `items` has the members that docs/http.md lists for `POST /plan`: key, size and place.
    """

    token_ids: list[int]
    items: list[dict[str, Any]]
    planned_spans: list[_PlannedSpan] = field(name="spans")
    blocks: list[str]
    event_ids: list[int]
    request: dict[str, Any]

    @property
    def spans(self) -> list[Span]:
        """The placeholders of each item."""
        return [Span(span.start, span.end, Digest.fromhex(span.key)) for span in self.planned_spans]


class Blocks(Struct, frozen=True):
    """The keys of a prompt's blocks, in hex, and their ids in the engine's KV events."""

    blocks: list[str]
    event_ids: list[int]


class Hashed(Struct):
    """The response to `POST /hash`."""

    items: list[Item]


class AnnotatedRequest(Struct):
    """The response to `POST /annotate`."""

    request: dict[str, Any]
    items: list[Item]


class Padded(Struct):
    """The response to `POST /pad`."""

    input_ids: list[int]


def parse(body: bytes, kind: type[T]) -> T:
    """Return a response as a struct or dict."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ServiceError(
            f"the response is not JSON of this service: is this another server? {error}",
            status=200,
        ) from None
