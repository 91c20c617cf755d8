"""Headers that take one value.

If one is repeated, a gateway, the guard and the service may each use another value. The guard
imports this into the engine's process, so nothing here imports the service's metrics.
"""

from collections.abc import Iterable

from mmhash.engines.caller_fields import COMPRESSION_HEADERS

SINGLE_VALUED = frozenset(
    {
        b"authorization",
        b"content-length",
        b"content-type",
        b"host",
        b"transfer-encoding",
        b"x-mmhash-tenant",
        b"x-request-id",
        *(name.encode() for name in COMPRESSION_HEADERS),
    }
)


def has_duplicates(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return True if a header that takes one value is repeated; names are in lower case."""
    names = [name for name, _ in headers if name in SINGLE_VALUED]
    return len(names) != len(set(names))
