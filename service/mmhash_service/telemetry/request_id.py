"""The id of a request: in its header, in the log, in its response and in a worker's request."""

import os
import re
from collections.abc import Iterable
from contextvars import ContextVar

ID_HEADER = b"x-request-id"

_GOOD_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}", re.ASCII)

request_id: ContextVar[str] = ContextVar("request_id", default="")


def id_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the id in the request's header if it is well-formed, else a random one."""
    given = [value for name, value in headers if name == ID_HEADER]
    if len(given) == 1 and _GOOD_ID.fullmatch(given[0]):
        return given[0]
    return os.urandom(8).hex().encode()
