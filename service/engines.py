"""The engines that a request names, and the items of its spans."""

from mmhash import Digest
from mmhash.engines.engine import Engine, ItemSpan, ItemSpanError
from mmhash.engines.registry import find
from mmhash.errors import InputError
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import Span


def parse_engines(text: str | None) -> tuple[str, ...]:
    """Return the names in `sglang@0.5.23,vllm`; each is known and takes a hash in some request."""
    names = tuple(text.split(",")) if text else ()
    for name in names:
        engine, _ = find_engine(*name.split("@", 1))
        if engine.fields_of_key is None:
            raise Problem("no-field")
    return names


def find_engine(name: str, version: str | None = None) -> tuple[Engine, str]:
    """Return the engine and the release: the newest known if `version` is None."""
    try:
        return find(name if version is None else f"{name}@{version}")
    except InputError as error:
        raise Problem("unknown-engine") from error


def item_span(span: Span) -> ItemSpan:
    """Return a span of a request's body as the engines' modules take it."""
    key = None if span.key is None else Digest("blake3", bytes.fromhex(span.key))
    try:
        return ItemSpan(span.start, span.end, key, span.hash)
    except ItemSpanError as error:
        raise Problem("invalid-span") from error
