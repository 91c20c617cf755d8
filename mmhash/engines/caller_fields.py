"""The request fields and routes of all engines by which a caller can reach their caches.

The guard and the gateway look for all of them, whatever the engine behind them: these tables are
the union of what the engines' modules say.
"""

from collections.abc import Iterable

from mmhash.engines.engine import CallerField, Kind
from mmhash.engines.registry import ENGINES
from mmhash.errors import InputValueError


def kinds_of(fields: Iterable[CallerField]) -> dict[str, Kind]:
    """Return the kind of each field; two kinds of one name are an error."""
    kinds: dict[str, Kind] = {}
    for field in fields:
        for name in field.names:
            if kinds.setdefault(name, field.kind) != field.kind:
                raise InputValueError(f"{name} is {kinds[name]} and {field.kind}")
    return kinds


_ALL_KINDS = kinds_of(field for engine in ENGINES for field in engine.caller_fields)

KINDS: dict[str, Kind] = {
    name: kind for name, kind in _ALL_KINDS.items() if kind not in {"header", "pass"}
}
"""The kind of each field that the guard looks for in a body."""

HEADERS = frozenset(name for name, kind in _ALL_KINDS.items() if kind == "header")

MEDIA = frozenset(name for engine in ENGINES for name in engine.media_members)
"""Members that hold media objects, in lists of lists."""

FEATURE_FORMATS = frozenset(name for engine in ENGINES for name in engine.feature_formats)
"""Formats of media objects that hold features, in lower case."""

OPERATOR_ROUTES = frozenset(name for engine in ENGINES for name in engine.operator_routes)

COMPRESSION_HEADERS = (
    "content-encoding",
    *dict.fromkeys(name for engine in ENGINES for name in engine.compression_headers),
)
"""Headers by which an engine decompresses a body."""
