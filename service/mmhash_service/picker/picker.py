"""The picker tells Envoy which workers may get a request. Each request has its own gRPC stream.

The picker prepares the request and decides as the gateway does. It counts the request for its
worker until the stream ends. Envoy forwards the request, and handles retries, time-outs and
connections.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc
from fastapi import Request
from starlette.datastructures import State

from mmhash.engines.caller_fields import PEER_HEADERS
from mmhash.tags import TENANT_TAG_HEADER
from mmhash_service.bodies.reading import StallTimer, refuse_compressed, too_large
from mmhash_service.gateway.exchange import Exchange
from mmhash_service.gateway.request import COPIES, body_limit, has_prompt, read_request
from mmhash_service.gateway.resources import GatewayResources
from mmhash_service.gateway.router import Decision, Routing
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker import Worker
from mmhash_service.http.middleware import is_authorized
from mmhash_service.http.problem_responses import response_to
from mmhash_service.items.context import resolve_tenant
from mmhash_service.limits.capacity import Admission
from mmhash_service.limits.text import header_of, repeated_header
from mmhash_service.picker import ext_proc, messages
from mmhash_service.picker.messages import Changes
from mmhash_service.problems.problem import Problem
from mmhash_service.telemetry.tracing import id_of, request_id

# Name at most this many workers in an answer: the best one, and others for Envoy's retries.
_MAX_ENDPOINTS = 4

# Clients may neither name peers nor vouch for a tenant.
_NOT_SENT = frozenset({TENANT_TAG_HEADER, *(name.encode() for name in PEER_HEADERS)})

# The modes in which Envoy sends the whole body before forwarding any of it.
_WHOLE = frozenset({ext_proc.BUFFERED, ext_proc.FULL_DUPLEX_STREAMED})


class _GoneError(Exception):
    """Envoy has ended the stream: the response is complete, or the client has disconnected."""


class _Body(NamedTuple):
    text: bytes
    has_trailers: bool = False


class Picker:
    """Answers the streams of one process."""

    def __init__(self, resources: GatewayResources, gateway: GatewaySettings) -> None:
        self.state = State({"resources": resources})  # handlers look up the resources here
        self._resources = resources
        self._fleet = resources.fleet
        self._authorization = gateway.authorization
        self._waiting: set[asyncio.Task[Any] | None] = set()
        self._is_stopping = False

    def stop(self) -> None:
        """End the streams that only wait for a response. Envoy forwards it without them."""
        self._is_stopping = True
        for task in list(self._waiting):
            if task is not None:
                task.cancel()

    async def process(self, _requests: Any, stream: Any) -> None:
        """Answer a stream, which is the context of a gRPC call."""
        try:
            first = await _next(stream)
            if first.WhichOneof("request") != "request_headers":
                await _refuse_order(stream)
            await self._process(stream, first)
        except (_GoneError, asyncio.CancelledError):
            pass  # Envoy goes on without an answer, as if it had no picker
        except Problem as problem:
            await stream.write(messages.refuse(response_to(problem)))
        finally:
            self._waiting.discard(asyncio.current_task())

    async def _process(self, stream: Any, first: Any) -> None:
        with ExitStack() as computing:
            with Admission(self._resources.limits) as held:
                exchange = await self._pick(stream, first, held, computing)
            if self._is_stopping:
                raise _GoneError
            self._waiting.add(asyncio.current_task())
            head = await _find(stream, "response_headers")
        served = messages.read_served(head)
        if served and served != exchange.worker.endpoint:
            exchange = self._moved(exchange, served)
        status = int(dict(messages.read_headers(head.response_headers)).get(b":status", b"0"))
        exchange.answer(status)
        try:
            await stream.write(messages.answer_unchanged("response_headers"))
            await _find(stream, "")
        finally:
            exchange.end(is_computed=status < 400, is_complete=status < 400)

    async def _pick(
        self, stream: Any, first: Any, held: Admission, computing: ExitStack
    ) -> Exchange:
        """Answer a request, and return the exchange that counts it for its worker."""
        request = self._open(first)
        mode = first.protocol_config.request_body_mode
        has_body = mode in _WHOLE and not first.request_headers.end_of_stream
        is_buffered = has_body and mode == ext_proc.BUFFERED
        if is_buffered:
            await stream.write(messages.answer_headers())
        body = await self._read(stream, request, held, mode) if has_body else _Body(b"")
        decision = await self._decide(first, request, body, held, has_body=has_body)
        best = decision.best
        if best is None:
            raise Problem("no-workers")
        exchange = Exchange(self._fleet, decision, best)
        computing.enter_context(exchange)
        changes = self._changes(request, body, decision, best)
        if is_buffered:
            await stream.write(messages.answer_buffered(changes))
            return exchange
        await stream.write(messages.answer_headers(changes))
        if has_body:
            text = decision.prepared.body
            for piece in messages.answer_streamed(text, ends=not body.has_trailers):
                await stream.write(piece)
            if body.has_trailers:
                await stream.write(messages.answer_unchanged("request_trailers"))
        return exchange

    def _changes(self, request: Request, body: _Body, decision: Decision, best: Worker) -> Changes:
        """Return what Envoy must change before it forwards a request."""
        workers = [self._fleet.workers[one.url] for one in decision.workers]
        # The body is prepared for the best worker's engine, so name no workers of other engines.
        endpoints = [str(one.endpoint) for one in workers if one.engine == best.engine]
        headers = [*self._authorization, *decision.prepared.headers]
        removed = self._removed(request, headers)
        text: bytes | None = decision.prepared.body
        if text == body.text:
            text = None
        elif body.has_trailers:  # a body with trailers is chunked
            removed.append(b"content-length")
            text = None
        return Changes(endpoints[:_MAX_ENDPOINTS], headers, removed, text)

    def _open(self, first: Any) -> Request:
        """Return the request with these headers. Raise a Problem if the gateway would refuse it."""
        headers = messages.read_headers(first.request_headers)
        pseudo = {name: value for name, value in headers if name.startswith(b":")}
        headers = [header for header in headers if header[0] not in pseudo]
        request_id.set(id_of(headers).decode())
        if (name := repeated_header(headers)) is not None:
            raise Problem("duplicate-header", reason=f"{name} is repeated")
        path, _, query = pseudo.get(b":path", b"").partition(b"?")
        scope = {
            "type": "http",
            "app": self,
            "method": pseudo.get(b":method", b"").decode("latin-1"),
            "path": unquote(path.decode("latin-1")),
            "query_string": query,
            "headers": headers,
        }
        request = Request(scope)
        settings = self._resources.settings
        if settings.api_key_digests and not is_authorized(headers, settings.api_key_digests):
            raise Problem("unauthorized")
        resolve_tenant(request, settings)
        refuse_compressed(request)
        return request

    async def _read(self, stream: Any, request: Request, held: Admission, mode: int) -> _Body:
        """Return the whole body, which Envoy sends before forwarding any of it."""
        settings = self._resources.settings
        limit = body_limit(request, settings)
        pieces: list[bytes] = []
        length = 0
        with StallTimer(settings.timeout_s) as timer:
            while True:
                message = await _next(stream)
                part = message.WhichOneof("request")
                if part == "request_trailers":
                    return _Body(b"".join(pieces), has_trailers=True)
                if part != "request_body":
                    await _refuse_order(stream)
                piece = message.request_body.body
                length += len(piece)
                if length > limit:
                    raise too_large(limit)
                held.hold(COPIES * len(piece))
                timer.count(len(piece))
                pieces.append(piece)
                if message.request_body.end_of_stream or mode == ext_proc.BUFFERED:
                    return _Body(b"".join(pieces))

    async def _decide(
        self, first: Any, request: Request, body: _Body, held: Admission, *, has_body: bool
    ) -> Decision:
        path, work = request.scope["path"], self._resources.work
        is_prompt = has_body and has_prompt(request)
        content_type = header_of(request.scope["headers"], b"content-type") or ""
        routed = await read_request(body.text, content_type, path, work, is_prompt=is_prompt)
        subset = messages.read_subset(first)

        def may_choose(worker: Worker) -> bool:
            return (
                worker.is_healthy
                and worker.endpoint is not None
                and (subset is None or _is_in(worker, subset))
            )

        return await Routing(
            self._resources, request, routed, held,
            is_prompt=is_prompt, may_choose=may_choose,
        ).decide()  # fmt: skip

    def _removed(self, request: Request, replaced: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
        """Return the client's headers that the worker must not get, except replaced ones."""
        refused = _NOT_SENT - dict(replaced).keys()
        removed = [name for name, _ in request.scope["headers"] if name in refused]
        if self._resources.settings.api_key_digests and not self._authorization:
            removed.append(b"authorization")
        return removed

    def _moved(self, exchange: Exchange, served: str) -> Exchange:
        """Return the exchange for the worker that Envoy chose instead of the best one."""
        for worker in self._fleet.workers.values():
            if worker.endpoint == served:
                return exchange.moved_to(worker)
        return exchange


async def _next(stream: Any) -> Any:
    message = await stream.read()
    if message is grpc.aio.EOF:
        raise _GoneError
    return message


async def _refuse_order(stream: Any) -> None:
    code = grpc.StatusCode.INVALID_ARGUMENT
    await stream.abort(code, "a request must have headers, then a body, then trailers")


async def _find(stream: Any, part: str) -> Any:
    """Return the next message with this part. Tell Envoy to change nothing in earlier ones."""
    while True:
        message = await _next(stream)
        found = message.WhichOneof("request")
        if found == part:
            return message
        if found is not None:
            await stream.write(messages.answer_unchanged(found))


def _is_in(worker: Worker, endpoints: frozenset[str]) -> bool:
    endpoint = worker.endpoint or ""
    return endpoint in endpoints or endpoint.rpartition(":")[0].strip("[]") in endpoints
