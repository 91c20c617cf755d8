"""The request fields of all engines through which a caller can reach their caches.

The guard looks for every field, whatever engine is behind it. These tables merge what the engines'
modules declare.
"""

from collections.abc import Iterable

from mmhash.engines.engine import CallerField, Kind
from mmhash.engines.registry import ENGINES
from mmhash.errors import InputValueError


def kinds_of(fields: Iterable[CallerField]) -> dict[str, Kind]:
    """Return the kind of each field; a name with two kinds is an error."""
    kinds: dict[str, Kind] = {}
    for field in fields:
        if kinds.setdefault(field.name, field.kind) != field.kind:
            raise InputValueError(f"{field.name} is {kinds[field.name]} and {field.kind}")
    return kinds


_ALL_KINDS = kinds_of(field for engine in ENGINES for field in engine.caller_fields)

KINDS: dict[str, Kind] = {name: kind for name, kind in _ALL_KINDS.items() if kind != "header"}
"""The kind of each field that the guard looks for in a body."""

PEER_HEADERS = frozenset(name for name, kind in _ALL_KINDS.items() if kind == "header")

MEDIA = frozenset(name for engine in ENGINES for name in engine.media_members)
"""Members that hold media objects, possibly in nested lists."""

FEATURE_FORMATS = frozenset(name for engine in ENGINES for name in engine.feature_formats)
"""Formats of media objects that hold features, in lower case."""

COMPRESSION_HEADERS = (
    "content-encoding",
    *dict.fromkeys(name for engine in ENGINES for name in engine.compression_headers),
)
"""Headers that make an engine decompress a body."""
