"""Limits on headers and on JSON that the service and the guard share.

The guard imports this module into the engine's process, so nothing here imports the service's
metrics.
"""

import re
from collections.abc import Iterable

import numpy as np

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


# 19 digits hold every number below 2**63; int() is slow only for much longer texts.
_NATURAL = re.compile(r"[0-9]{1,19}", re.ASCII)


def parse_natural(text: str) -> int | None:
    """Return the number that `text` spells in decimal digits, or None if it is not below 2**63."""
    if not _NATURAL.fullmatch(text):
        return None
    number = int(text)
    return number if number < 1 << 63 else None


def header_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """Return the value of a header, whose name is in lower case, or None."""
    for one, value in headers:
        if one == name:
            return value.decode("latin-1")
    return None


def repeated_header(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the name of a repeated header that takes one value, or None. Names are lower case."""
    names = [name for name, _ in headers if name in SINGLE_VALUED]
    if len(names) == len(set(names)):
        return None
    return next(name for name in names if names.count(name) > 1).decode()


# Long strings are cheap to parse, but numbers and names are not. The parser holds the GIL, and so
# blocks the event loop. With this many values it does so for as long as we accept.
MAX_VALUES = 150_000

# How deep the guard searches.
MAX_DEPTH = 200

# Count this many bytes at a time.
_STEP = 1 << 20


def has_many_values(text: bytes | bytearray) -> bool:
    """Return True if a JSON text may have more values than the parser may read in one call.

    A text of at most MAX_VALUES bytes need not be counted. numpy releases the GIL, and is much
    faster than count().
    """
    if len(text) <= MAX_VALUES:
        return False
    signs = np.frombuffer(text, np.uint8)
    values = sum(
        int(np.count_nonzero(signs[start : start + _STEP] == sign))
        for start in range(0, len(text), _STEP)
        for sign in b",:["
    )
    return values > MAX_VALUES
