"""Middleware for every request: metrics, access log, failures, spans, API keys, headers."""

import logging
from collections.abc import Collection
from hmac import compare_digest
from time import perf_counter

from blake3 import blake3
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmhash_service.bodies.reading import BODY_BYTES
from mmhash_service.endpoints import probes
from mmhash_service.http.problem_responses import problem_response, response_to
from mmhash_service.limits.text import repeated_header
from mmhash_service.problems.problem import Problem
from mmhash_service.resources import Resources
from mmhash_service.telemetry import ROUTE, metrics, tracing
from mmhash_service.telemetry.tracing import ID_HEADER, id_of, request_id

logger = logging.getLogger(__name__)

# Probes ask for these every few seconds, so they are neither logged nor counted.
POLLED = frozenset({"/live", "/ready", "/health", "/metrics"})


class RequestMiddleware:
    """Counts, times, logs and traces requests, and refuses requests with duplicate headers.

    It turns a failure without a response into a problem response. Logs, metrics and spans call
    paths other than `paths` `other`.
    """

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
                tracing.note_status(status)
            await send(message)

        path = scope["path"]
        app = self._app
        if (name := repeated_header(scope["headers"])) is not None:  # before any header is used
            app = problem_response("duplicate-header", reason=f"{name} is repeated")
        if path in POLLED:
            await app(scope, receive, send_and_note)
            return
        label = path if path in self._paths else "other"
        with tracing.request_span(scope["method"], label, scope["headers"]):
            try:
                await app(scope, receive, send_and_note)
            except Exception as error:
                has_response = status > 0
                if not has_response:
                    await response_to(error)(scope, receive, send_and_note)
                if has_response or not isinstance(error, Problem | ClientDisconnect):
                    raise  # for the server's log
            finally:
                seconds = perf_counter() - start
                status = status or 499  # the client disconnected before the response
                metrics.labelled(metrics.REQUESTS, label, str(status)).inc()
                metrics.labelled(metrics.SECONDS, label).observe(seconds)
                fields = {
                    "duration_ms": round(1e3 * seconds, 3),
                    "body_bytes": scope.get(BODY_BYTES, 0),
                    **scope.get(ROUTE, {}),
                }
                logger.info("%s %s %d", scope["method"], label, status, extra={"fields": fields})


class MetricsPortMiddleware:
    """Answers requests that arrive at the metrics port."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request at the metrics port, or pass it on."""
        # This is the connection's port, which no header can change.
        if scope["type"] != "http" or scope["server"][1] != self._port:
            await self._app(scope, receive, send)
        elif scope["path"] != "/metrics":
            await problem_response("not-found")(scope, receive, send)
        elif scope["method"] not in {"GET", "HEAD"}:
            await problem_response("method-not-allowed")(scope, receive, send)
        else:
            response = await probes.metrics()
            await response(scope, receive, send)


# Health checks need no key.
PROBES = frozenset({"/live", "/ready", "/health"})


class ApiKeyMiddleware:
    """Refuses requests without a valid key, except for probes and pages."""

    def __init__(self, app: ASGIApp, pages: Collection[str] = frozenset()) -> None:
        self._app = app
        # Pages are open, because they ask their user for the key.
        self._open_paths = PROBES | frozenset(pages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it before its body is read."""
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            # Look up the current digests, because a reload replaces them.
            digests = Resources.of_app(scope["app"]).settings.api_key_digests
            if not is_authorized(scope["headers"], digests):
                await problem_response("unauthorized")(scope, receive, send)
                return
        await self._app(scope, receive, send)


def is_authorized(headers: list[tuple[bytes, bytes]], digests: tuple[str, ...]) -> bool:
    """Return True if a request has a valid key."""
    scheme, _, key = Headers(raw=headers).get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and _is_valid(key, digests)


def _is_valid(key: str, digests: tuple[str, ...]) -> bool:
    actual = blake3(key.encode("latin-1")).hexdigest()  # the bytes of the header
    # No early exit: the response time must not reveal which digest matched.
    return sum(compare_digest(actual, digest) for digest in digests) > 0
