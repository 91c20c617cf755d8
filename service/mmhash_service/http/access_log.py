"""The access log and the metrics of requests."""

import logging
from functools import cache
from time import perf_counter

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmhash_service.bodies.reading import BODY_BYTES
from mmhash_service.telemetry import metrics
from mmhash_service.telemetry.request_id import ID_HEADER, id_of, request_id

logger = logging.getLogger(__name__)

# Polled every few seconds: neither logged nor counted.
POLLED = frozenset({"/live", "/ready", "/health", "/metrics"})


class AccessLogMiddleware:
    """Counts, times and logs requests. Paths other than `paths` are reported as `other`."""

    def __init__(self, app: ASGIApp, paths: frozenset[str]) -> None:
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = perf_counter()
        identifier = id_of(scope["headers"])
        request_id.set(identifier.decode())
        status = 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (ID_HEADER, identifier)]
            await send(message)

        path = scope["path"]
        if path in POLLED:
            await self._app(scope, receive, send_and_note)
            return
        try:
            await self._app(scope, receive, send_and_note)
        finally:
            seconds = perf_counter() - start
            label = path if path in self._paths else "other"
            status = status or 499  # the client disconnected before the response
            _requests(label, status).inc()
            _seconds(label).observe(seconds)
            fields = {
                "duration_ms": round(1e3 * seconds, 3),
                "body_bytes": scope.get(BODY_BYTES, 0),
            }
            logger.info("%s %s %d", scope["method"], label, status, extra={"fields": fields})


# Cached: labels() takes as long as the rest of the middleware.
@cache
def _seconds(label: str) -> Histogram:
    return metrics.SECONDS.labels(label)


@cache
def _requests(label: str, status: int) -> Counter:
    return metrics.REQUESTS.labels(label, str(status))
