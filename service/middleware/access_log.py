"""Around every call: its id, its line in the log, and its place in the metrics."""

import logging
import os
import re
from contextvars import ContextVar
from functools import cache
from time import perf_counter

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmhash_service.bodies.reading import BODY_BYTES
from mmhash_service.runtime import metrics

logger = logging.getLogger(__name__)

HEADER = b"x-request-id"
# Asked every few seconds by machines: neither logged nor counted.
PROBES = frozenset({"/live", "/ready", "/health", "/metrics"})

_GOOD_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}", re.ASCII)

request_id: ContextVar[str] = ContextVar("request_id", default="")


class AccessLogMiddleware:
    """Counts, times and logs the calls of `paths`; all others are one to the metrics."""

    def __init__(self, app: ASGIApp, paths: frozenset[str]) -> None:
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a call and see what becomes of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = perf_counter()
        identifier = _id_of(scope)
        request_id.set(identifier.decode())
        status = 0

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (HEADER, identifier)]
            await send(message)

        path = scope["path"]
        if path in PROBES:
            await self._app(scope, receive, note)
            return
        try:
            await self._app(scope, receive, note)
        finally:
            seconds = perf_counter() - start
            call = path if path in self._paths else "other"
            status = status or 499  # nobody was there to be answered
            _requests(call, status).inc()
            _seconds(call).observe(seconds)
            fields = {
                "duration_ms": round(1e3 * seconds, 3),
                "body_bytes": scope.get(BODY_BYTES, 0),
            }
            logger.info("%s %s %d", scope["method"], call, status, extra={"fields": fields})


def _id_of(scope: Scope) -> bytes:
    """The id that the caller gave, if it is one plain word, or one of ours."""
    given: list[bytes] = [value for name, value in scope["headers"] if name == HEADER]
    if len(given) == 1 and _GOOD_ID.fullmatch(given[0]):
        return given[0]
    return os.urandom(8).hex().encode()


# labels() takes as long as all the rest.
@cache
def _seconds(call: str) -> Histogram:
    return metrics.SECONDS.labels(call)


@cache
def _requests(call: str, status: int) -> Counter:
    return metrics.REQUESTS.labels(call, str(status))
