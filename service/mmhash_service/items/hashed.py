"""An item that is hashed once, and named for as many engines as a request asks for."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from mmhash import Digest
from mmhash.engines import RequestFields
from mmhash.view import Kind
from mmhash_service.items.engines import RequestedEngine
from mmhash_service.items.tenants import Signer

ItemKind = Kind | Literal["video", "audio"]
MemoStatus = Literal["hit", "miss"]


class HashedItem(NamedTuple):
    """What the service knows of an item after it has hashed it."""

    # As the body names it.
    name: str | None
    kind: ItemKind
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: Digest
    key: Digest
    # By EXIF, of an image that is hashed by its pixels: the key does not cover it.
    orientation: int = 1
    memo: MemoStatus | None = None
    # The keys of a clip's frames or windows, if it is hashed by these.
    frames: tuple[Digest, ...] | None = None


def names_of(
    item: HashedItem, engines: Iterable[RequestedEngine], options: str = ""
) -> dict[str, RequestFields]:
    """Return the fields by which each engine names the item under these options."""
    return {
        engine.name: engine.request_fields(item.key, options, item.orientation)
        for engine in engines
    }


def tag_of(item: HashedItem, engine: RequestedEngine, signer: Signer, options: str = "") -> str:
    """Return a tag for the name that the engine has for the item."""
    return signer.tag(engine.name_item(item.key, options, item.orientation))


def describe(
    item: HashedItem, names: Mapping[str, RequestFields] | None = None, tag: str | None = None
) -> dict[str, Any]:
    """Return the item as responses have it (`endpoints.schemas.items.Item`)."""
    described: dict[str, Any] = {
        "name": item.name,
        "kind": item.kind,
        "dtype": item.dtype,
        "shape": item.shape,
        "nbytes": item.nbytes,
        "algorithm": item.digest.algorithm,
        "digest": item.digest.hex(),
        "key": item.key.hex(),
    }
    if names:
        described["engines"] = names
    if item.orientation != 1:
        described["exif_orientation"] = item.orientation
    if item.memo is not None:
        described["memo"] = item.memo
    if item.frames is not None:
        described["frames"] = [key.hex() for key in item.frames]
    if tag is not None:
        described["tag"] = tag
    return described
