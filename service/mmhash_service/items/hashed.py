"""An item that is hashed once, and named for every engine that a request asks for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from mmhash import Digest
from mmhash.engines import RequestFields
from mmhash.engines.engine import Engine
from mmhash.engines.registry import ENGINES, find
from mmhash.errors import InputError
from mmhash.view import Kind
from mmhash_service.memo.memo import CacheStatus
from mmhash_service.problems.problem import Problem


@dataclass(frozen=True, slots=True)
class RequestedEngine:
    """An engine as a request names it, and its release."""

    name: str
    engine: Engine
    version: str

    def name_item(self, key: Digest, options: str = "", orientation: int = 1) -> Digest:
        """Return the key by which the engine names an item under these options."""
        return self.engine.name_item(key, self.version, options=options, orientation=orientation)

    def request_fields(self, key: Digest, options: str = "", orientation: int = 1) -> RequestFields:
        """Return the fields that name an item."""
        named = self.name_item(key, options, orientation)
        return self.engine.request_fields(named, self.version)


@lru_cache(64)  # the gateway looks up the same engines for each request
def parse_engines(text: str | None) -> tuple[RequestedEngine, ...]:
    """Return the engines in `sglang@0.5.23,vllm`."""
    return tuple(find_engine(name) for name in text.split(",")) if text else ()


def find_engine(name: str) -> RequestedEngine:
    """Return the engine and release that `sglang@0.5.23` names."""
    try:
        engine, version = find(name)
    except InputError as error:
        raise Problem("unknown-engine", reason=str(error)) from error
    return RequestedEngine(name, engine, version)


_FEATURES = {
    "annotate": "reads the requests",
    "blocks": "computes the block keys",
    "pad": "computes the pad values",
}
"""Features that only some engines have, by the attribute of `Engine` that the others lack."""


def require(engine: Engine, feature: Literal["annotate", "blocks", "pad"]) -> Any:
    """Return a feature of an engine, or refuse the request if the engine lacks it."""
    found = getattr(engine, feature)
    if not found:
        having = " or ".join(one.name for one in ENGINES if getattr(one, feature))
        reason = f"mmhash {_FEATURES[feature]} of {having}, not of {engine.name}"
        if feature == "annotate":  # Dynamo runs another engine
            reason += f": name the engine that {engine.name} runs"
        raise Problem("refused-by-engine", reason=reason)
    return found


class HashedItem(NamedTuple):
    """What the service knows about an item after hashing it."""

    # The caller's name for the item.
    name: str | None
    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: Digest
    key: Digest
    # The EXIF orientation of an image hashed by its pixels, which its key does not cover.
    orientation: int = 1
    memo: CacheStatus | None = None


def names_of(
    item: HashedItem, engines: Iterable[RequestedEngine], options: str = ""
) -> dict[str, RequestFields]:
    """Return the fields by which each engine names the item under these options."""
    return {
        engine.name: engine.request_fields(item.key, options, item.orientation)
        for engine in engines
    }


def describe(
    item: HashedItem, names: Mapping[str, RequestFields] | None = None, tag: str | None = None
) -> dict[str, Any]:
    """Return the item for a response, as `items.schema.Item` describes it."""
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
    if tag is not None:
        described["tag"] = tag
    return described
