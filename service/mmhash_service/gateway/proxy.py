"""The proxy sends a request to the best worker, and returns the response as it arrives.

The proxy retries only until the first byte of a response's body. If it cannot reach a worker, it
tries every other one, because the worker has seen nothing of the request. If the connection breaks
later, it tries one other worker.
"""

import asyncio
import math
import time
from typing import Any

from fastapi import Request
from starlette.types import Receive, Scope, Send

from mmhash.requests import PATHS
from mmhash_service.bodies.reading import CYCLE, read_body
from mmhash_service.gateway.connection import (
    BrokenError,
    Connection,
    SilentError,
    WorkerError,
    for_client,
    for_worker,
    request_head,
)
from mmhash_service.gateway.exchange import Exchange
from mmhash_service.gateway.request import (
    COPIES,
    RoutedRequest,
    body_limit,
    has_prompt,
    read_request,
)
from mmhash_service.gateway.resources import GatewayResources
from mmhash_service.gateway.router import Routing
from mmhash_service.items.context import resolve_tenant
from mmhash_service.limits.capacity import Admission
from mmhash_service.limits.text import header_of
from mmhash_service.problems.problem import Problem
from mmhash_service.telemetry import ROUTE, metrics, tracing
from mmhash_service.telemetry.tracing import ID_HEADER, request_id

# The paths that the access log and metrics name. Any other path is "other".
KNOWN_PATHS = frozenset(PATHS) | {
    "/detokenize",
    "/tokenize",
    "/v1/embeddings",
    "/v1/models",
    "/v1/rerank",
    "/v1/score",
}

_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})


class Proxy:
    """The ASGI application for all paths that the gateway does not answer itself."""

    def __init__(self, resources: GatewayResources) -> None:
        gateway = resources.gateway
        self._resources = resources
        self._settings = settings = resources.settings
        self._limits = resources.limits
        self._work = resources.work
        self._fleet = resources.fleet
        self._timeout_s = gateway.worker_timeout_s
        self._patience_s = 2 * gateway.health_timeout_s
        self._names_route = gateway.route_header
        # Workers do not need to know the API keys of the gateway's clients.
        self._authorization = gateway.authorization
        self._keeps_authorization = not self._authorization and not settings.api_key_digests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request."""
        request = Request(scope, receive)
        resolve_tenant(request, self._resources.settings)  # refuse an unknown tenant here
        # Clients resolve `..` themselves. If a worker's URL has a path, `..` would lead out of that
        # path, and so would the target `*`.
        path = scope["path"]
        if not path.startswith("/") or ".." in path.split("/"):
            raise Problem("not-found")
        cycle = scope.get(CYCLE)  # None on another server, which does not say who left
        with self._limits.admit() as held:
            is_prompt = has_prompt(request)
            routed = await self._read(request, held, is_prompt=is_prompt)
            routing = Routing(self._resources, request, routed, held, is_prompt=is_prompt)
            try:
                if cycle is not None:
                    cycle.watch(cancels=True)  # receiving a disconnect would take another task
                exchange, connection = await self._send(scope, routing)
                scope[ROUTE] = exchange.facts
                del routed, routing
                if connection.has_sent:
                    held.release()  # the response may take minutes
                is_complete = False
                try:
                    is_complete = await self._respond(exchange, connection, cycle, send)
                finally:
                    is_computed = connection.has_body and connection.status < 400
                    exchange.worker.pool.give_back(connection)
                    exchange.end(is_computed=is_computed, is_complete=is_complete)
            except asyncio.CancelledError:
                if cycle is not None and cycle.is_disconnected:
                    metrics.GATEWAY_DISCONNECTS.inc()
                raise

    async def _read(self, request: Request, held: Admission, *, is_prompt: bool) -> RoutedRequest:
        """Read the request, and remove hashes and peers that callers may not set."""
        pieces: list[bytes] = []

        def take(piece: bytes | memoryview) -> None:
            held.hold(COPIES * len(piece))
            pieces.append(bytes(piece))

        settings = self._settings
        await read_body(request, body_limit(request, settings), take, settings.timeout_s)
        body, path = b"".join(pieces), request.scope["path"]
        content_type = header_of(request.scope["headers"], b"content-type") or ""
        return await read_request(body, content_type, path, self._work, is_prompt=is_prompt)

    async def _send(self, scope: Scope, routing: Routing) -> tuple[Exchange, Connection]:
        """Send the request to one worker after another, until a worker begins to respond."""
        method = scope["method"].encode()
        target = scope["raw_path"]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        headers = for_worker(scope["headers"], keep_authorization=self._keeps_authorization)
        headers = tracing.propagate(headers)
        headers += [(ID_HEADER, request_id.get().encode()), *self._authorization]
        has_failed = False
        last_failure = ""
        until = math.inf
        while True:
            decision = await routing.decide()
            worker = decision.best
            if worker is None or not (worker.is_healthy or time.monotonic() < until):
                raise Problem("worker-failed" if has_failed else "no-workers")
            routing.tried.add(worker.url)
            body = decision.prepared.body
            length = None if not body and scope["method"] in _WITHOUT_BODY else len(body)
            path = worker.pool.path_prefix + target
            own = [*headers, *decision.prepared.headers]
            head = request_head(method, path, worker.pool.host_header, own, length)
            if last_failure:
                metrics.GATEWAY_RETRIES.labels(last_failure).inc()
            exchange = Exchange(self._fleet, decision, worker)
            start = time.perf_counter()
            try:
                with exchange:
                    # A prompt counts as being computed, and lengthens the queue, until its first
                    # token.
                    connection = await worker.send(
                        method, head, [body], self._timeout_s, until_body=routing.is_prompt
                    )
            except WorkerError as error:
                self._fleet.note_failure(worker, error)
                if isinstance(error, SilentError):
                    raise Problem("worker-timeout") from error
                if isinstance(error, BrokenError) and has_failed:
                    raise Problem("worker-failed") from error
                has_failed |= isinstance(error, BrokenError)
                last_failure = "broken" if isinstance(error, BrokenError) else "unreachable"
                # Try every healthy worker, and unhealthy ones for as long as the client may wait.
                until = min(until, time.monotonic() + self._patience_s)
                continue
            exchange.answer(connection.status)
            if routing.is_prompt:
                first_byte = metrics.labelled(metrics.GATEWAY_FIRST_BYTE_SECONDS, worker.url)
                first_byte.observe(time.perf_counter() - start)
            return exchange, connection

    async def _respond(
        self, exchange: Exchange, connection: Connection, cycle: Any, send: Send
    ) -> bool:
        """Forward the response. Return True if it is complete.

        If the worker's response breaks off, so does the client's, and the client notices.
        """
        headers = for_client(connection.headers)
        if self._names_route:
            headers.append((b"x-mmhash-route", exchange.header()))
        status = connection.status
        await send({"type": "http.response.start", "status": status, "headers": headers})
        is_read = False
        if not connection.has_body:  # send the head now: the body may begin much later
            await send({"type": "http.response.body", "body": b"", "more_body": True})
        try:
            while not is_read:
                piece = await connection.read()
                is_read = connection.is_read
                if is_read and cycle is not None:
                    cycle.watch(cancels=False)  # a client may leave once it has the response
                message = {"type": "http.response.body", "body": piece, "more_body": not is_read}
                await send(message)
        except BrokenError as error:
            metrics.GATEWAY_BROKEN.inc()
            self._fleet.note_failure(exchange.worker, error)
            return False
        except asyncio.CancelledError:
            if not self._limits.draining or (cycle is not None and cycle.is_disconnected):
                raise
            return False  # the grace period is over, but the response has begun
        return status < 400
