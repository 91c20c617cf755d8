"""uvicorn's HTTP/1.1 protocol, with limits on heads, pipelines, stalls and connections.

uvicorn's own limits begin once a head is complete: a single header, or pipelined requests, could
take gigabytes of memory.
"""

import asyncio
import resource
import select
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mmhash_service.bodies.reading import (
    DIRECT_MIN_BYTES,
    MIN_PROGRESS,
    RECEIVE_BODY,
    WATCH_CLIENT,
)
from mmhash_service.limits.text import parse_natural
from mmhash_service.server.body_sink import READ_BYTES, BodyReceiver, BodySink, Consume, Count

# Clients and proxies send far less, and most servers accept 8 to 32 KiB. The last read may exceed
# the limit, by up to 256 KiB.
MAX_HEAD = 64 << 10
MAX_HEADERS = 128

# How many requests of a connection may wait for an earlier one.
MAX_PIPELINED = 32

_VERSIONS = frozenset({"1.0", "1.1"})

# A request ends two of these intervals after its client has closed the connection.
_PROBE_S = 0.5

# Descriptors reserved for other uses: files, the memo store, fetches.
_SPARE_DESCRIPTORS = 128


class RefusedHeadError(ValueError):
    """The head of a request is refused. The client gets the message."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection with limits, on which every parser reads the same requests.

    If a proxy might parse a request differently, the server answers 400 and closes the connection.
    It answers a request to upgrade to another protocol in HTTP/1.1.
    """

    def __init__(self, *arguments: Any, stall_timeout_s: float, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._stall_timeout_s = stall_timeout_s
        self._max_connections = max_connections()
        self._timer: asyncio.TimerHandle | None = None
        # How many requests have begun. A new connection begins with a head.
        self._messages = 0
        self._in_head = True
        self._in_body = False
        # The bytes since the last head, or the last piece of a body: a head's or a trailer's.
        self._overhead = 0
        self._last_pending: tuple[str, int, int] | None = None
        # The request being answered. If the connection is lost, uvicorn tells only the newest one.
        self._answering: RequestResponseCycle | None = None
        self._on_disconnect: Callable[[], object] | None = None
        self._is_half_closed = False
        # The body that is arriving: its bytes so far, its length if known, its consumer if any.
        self._received = 0
        self._length: int | None = None
        self._sink: BodySink | None = None
        self._receiver: BodyReceiver | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, unless there are too many."""
        if len(self.connections) >= self._max_connections:
            transport.abort()
            return
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and tell the request being answered."""
        if self._timer is not None:  # otherwise the connection was never accepted
            self._timer.cancel()
            if self._answering is not None:
                self._answering.disconnected = True
                self._answering.message_event.set()
            if self._on_disconnect is not None:
                self._on_disconnect()
            if self._sink is not None:
                self._sink.fail(ClientDisconnect())
            if self._receiver is not None:
                self._receiver.end()
            super().connection_lost(exc)

    def _watch(
        self, cycle: RequestResponseCycle, on_disconnect: Callable[[], object] | None
    ) -> None:
        """Call a function if the client disconnects before it has the response."""
        if on_disconnect is not None and cycle.disconnected:
            self.loop.call_soon(on_disconnect)
        self._on_disconnect = on_disconnect

    def eof_received(self) -> Any:  # a bool, as asyncio defines it; uvicorn declares None
        """Return True to keep the connection for a response that has not begun.

        A client that has gone looks the same as a client that only has nothing more to send.
        """
        if self._is_half_closed:
            return True
        cycle = self._answering
        if self._in_head or self._in_body or cycle is None or cycle is not self.cycle:
            return False
        if cycle.response_started or cycle.scope["http_version"] != "1.1":
            return False
        self._is_half_closed = True
        cycle.keep_alive = False
        self.loop.call_later(_PROBE_S, self._probe_client, cycle)
        return True

    def _probe_client(self, cycle: RequestResponseCycle) -> None:
        """Send an interim response, which a waiting client ignores.

        A client that has gone resets the connection. The next write then fails, and the event loop
        closes the connection.
        """
        if not cycle.response_started and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.loop.call_later(_PROBE_S, self._probe_client, cycle)

    def data_received(self, data: bytes | memoryview) -> None:
        """Parse data, and refuse a head or trailer that is too long."""
        self._unset_keepalive_if_required()
        self._overhead += len(data)
        try:
            while data:
                data = self._parse(data)
        except httptools.HttpParserError as error:
            cause = error.__context__  # raised by a callback
            is_refused = isinstance(cause, RefusedHeadError)
            self._refuse(str(cause) if is_refused else "Invalid HTTP request received.")
        else:
            if self._overhead > MAX_HEAD:
                self._refuse("The head or the trailer of the request is too long.")

    def _refuse(self, reason: str) -> None:
        if self.transport.is_closing():
            return
        self.logger.warning(reason)
        cycle = self._answering
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()  # a refusal would become a part of that response
        else:
            self.send_400_response(reason)

    def _parse(self, data: bytes | memoryview) -> bytes:
        """Parse data, and return what must be parsed next, if anything."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The parser expects another protocol after this head, and would take the body for the
            # next request. Parse the request again, without the Upgrade header.
            head = self._head_without_upgrade()
            self.parser = self._new_parser()
            return head + bytes(data[upgrade.args[0] :])
        return b""

    def _head_without_upgrade(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([b"%b %b HTTP/%b" % (method, self.url, version), *lines, b"", b""])

    def on_message_begin(self) -> None:
        """Begin the head of a request."""
        self._messages += 1
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Ignore trailers, but refuse one that closes the connection."""
        if self._in_head:
            super().on_header(name, value)
        elif b"close" in value.lower() and name.lower().endswith(b"connection"):
            # The parser would drop all that follows, and the connection would stay open.
            raise RefusedHeadError("A trailer closes the connection.")

    def on_headers_complete(self) -> None:
        """Begin the request, unless its head is refused or parsed again."""
        self._in_head, self._in_body = False, True
        self._overhead = self._received = 0
        self._sink = None
        self._check_head()
        self._length = self._content_length()
        if self.parser.should_upgrade():
            return
        super().on_headers_complete()
        self.scope["extensions"] = {WATCH_CLIENT: {"watch": partial(self._watch, self.cycle)}}
        if self._length is None or self._length >= DIRECT_MIN_BYTES:
            receive = partial(self._receive_body, self.cycle)
            self.scope["extensions"][RECEIVE_BODY] = {"receive": receive}
        if self.expect_100_continue:
            # A proxy that gets a final response instead of 100 sends no body. Its next request on
            # this connection, perhaps of another client, would be read as the body.
            self.cycle.keep_alive = False

    def _check_head(self) -> None:
        if len(self.headers) > MAX_HEADERS:
            raise RefusedHeadError(f"The request has more than {MAX_HEADERS} headers.")
        if len(self.pipeline) >= MAX_PIPELINED:
            raise RefusedHeadError(
                f"{MAX_PIPELINED} requests of this connection are already waiting."
            )
        if self.parser.get_method() == b"CONNECT":
            raise RefusedHeadError("CONNECT is not supported.")
        if b"#" in self.url:  # a proxy's rules may see the fragment as a part of the path
            raise RefusedHeadError("The target of the request has a fragment.")
        version = self.parser.get_http_version()
        if version not in _VERSIONS:
            raise RefusedHeadError("The version is neither HTTP/1.0 nor HTTP/1.1.")
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and (
            version != "1.1" or [text.strip().lower() for text in codings] != [b"chunked"]
        ):
            raise RefusedHeadError("Transfer-Encoding must be chunked, once, in HTTP/1.1.")

    def _content_length(self) -> int | None:
        for name, value in self.headers:
            if name == b"content-length":
                length = parse_natural(value.strip().decode("latin-1"))
                if length is None:
                    raise RefusedHeadError("The Content-Length is not a number below 2**63.")
                return length
        return None

    def on_body(self, body: bytes | memoryview) -> None:
        """Pass on a piece of the body."""
        self._overhead = 0
        self._received += len(body)
        if self._sink is None:
            super().on_body(bytes(body))
        else:
            self._sink.count(len(body))
            self._sink.feed(body)

    def on_message_complete(self) -> None:
        """End the body."""
        self._in_body = False
        if not self.parser.should_upgrade():
            super().on_message_complete()
        if self._sink is not None:
            self._sink.complete()
        if self._receiver is not None:
            self._receiver.end()
            self._receiver = None
            if not self.transport.is_closing():
                self.transport.set_protocol(self)

    async def _receive_body(
        self, cycle: RequestResponseCycle, consume: Consume, count: Count
    ) -> None:
        """Pass each piece of a body to `consume`, and return at the end of the body."""
        if cycle.disconnected or self.transport.is_closing():
            raise ClientDisconnect
        if cycle.waiting_for_100_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            cycle.waiting_for_100_continue = False
        arrived, cycle.body = bytes(cycle.body), bytearray()
        count(len(arrived))
        consume(arrived)
        if not cycle.more_body:
            return
        sink = self._sink = BodySink(consume, count, self.loop)
        self._receiver = BodyReceiver(
            self, self.body_bytes_received, self._readable, self.flow, self.loop
        )
        self.transport.set_protocol(self._receiver)
        self.flow.resume_reading()
        await sink.done

    def _readable(self) -> int:
        """Return how many bytes to read at most: up to an aligned end, not into the next request.

        The hash takes aligned reads without a copy. Reads from a slow client are shorter.
        """
        if self._length is None:
            return READ_BYTES
        return min(self._length - self._received, READ_BYTES - self._received % READ_BYTES)

    def body_bytes_received(self, piece: memoryview) -> None:
        """Pass on a body's bytes if its length is known. Parse the bytes of a chunked body."""
        if self._length is None:
            self.data_received(piece)
            return
        self._unset_keepalive_if_required()
        self.on_body(piece)
        if self._received == self._length:
            self.parser = self._new_parser()  # the old parser still waits for this body
            self.on_message_complete()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return parser

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        if cycle.scope["http_version"] == "1.0":
            app = partial(_run_without_chunks, app, cycle)
        super()._start_asgi_task(cycle, app)

    def _start_timer(self) -> None:
        # One timer per connection, not per request.
        self._timer = self.loop.call_later(self._stall_timeout_s, self.on_timer)

    def on_timer(self) -> None:
        """Close the connection if the client has gone, or has made no progress since the last call.

        While requests wait for an earlier one, nothing is read, so only the timer notices that the
        client has gone.
        """
        pending = self.pending_client_action()
        has_hung_up = self.flow.read_paused and _has_hung_up(self.transport)
        is_gone = has_hung_up and not self.eof_received()
        if is_gone or (pending is not None and pending == self._last_pending):
            self.transport.abort()
            return
        self._last_pending = pending
        self._start_timer()

    def pending_client_action(self) -> tuple[str, int, int] | None:
        """Return what the client must do next: read a response, or send a head or a body.

        The value changes as the client makes progress. None means that it is the server's turn.
        """
        if unread := self.transport.get_write_buffer_size():
            return "read", self._messages, unread // MIN_PROGRESS
        if self.cycle is not None and not self.cycle.response_complete:
            return None  # a StallTimer watches the body of a running request
        if self._in_head or self._in_body:
            return "send", self._messages, 0
        return None


def _has_hung_up(transport: asyncio.Transport) -> bool:
    """Return True if the client has closed the connection, even with bytes left to read."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), getattr(select, "POLLRDHUP", 0))  # not on macOS
    return bool(poll.poll(0))


async def _run_without_chunks(
    app: ASGIApp, cycle: RequestResponseCycle, scope: Scope, receive: Receive, send: Send
) -> None:
    """Run an application for an HTTP/1.0 client, which does not understand chunks.

    uvicorn would send a body without a length in chunks. Here it ends with the connection.
    """
    has_length = False

    async def send_without_chunks(message: Message) -> None:
        nonlocal has_length
        if message["type"] == "http.response.start":
            has_length = any(name == b"content-length" for name, _ in message.get("headers", ()))
            if not has_length:
                cycle.chunked_encoding = False
        elif not has_length:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    await app(scope, receive, send_without_chunks)


def max_connections() -> int:
    """Return how many connections fit beside the reserved descriptors."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(1, descriptors - _SPARE_DESCRIPTORS)
