"""The engines that a call names, and what each knows a span's item by."""

from mmhash import Digest
from mmhash.engines.registry import parse
from mmhash.errors import InputError
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import Span


def parse_engines(text: str | None) -> tuple[str, ...]:
    """The names in `sglang@0.5.23,vllm`, each known."""
    names = tuple(text.split(",")) if text else ()
    for name in names:
        resolve_release(*name.split("@", 1))
    return names


def resolve_release(engine: str, version: str | None = None) -> str:
    """The release of the engine that is meant: the newest, if none is said."""
    try:
        return parse(engine if version is None else f"{engine}@{version}")[1]
    except InputError as error:
        raise Problem("unknown-engine") from error


def key_of(span: Span) -> Digest | None:
    """The key of a span's item, or None if the span says its 64-bit hash instead."""
    if (span.key is None) == (span.hash is None):
        raise Problem("invalid-span")
    return None if span.key is None else Digest("blake3", bytes.fromhex(span.key))


def mm_hash_of(span: Span) -> str:
    """The 64-bit hash of a span's item, in hex."""
    key = key_of(span)
    return f"{key.u64:016x}" if key is not None else span.hash or ""
