"""HTTP/1.1 with clients, with limits on heads, pipelines, stalls and connections.

uvicorn's own protocol limits nothing until a head is complete: a single header, or pipelined
requests, could take gigabytes of memory.
"""

import asyncio
import logging
import resource
import select
import sys
from collections import deque
from typing import Any, cast
from urllib.parse import unquote

import httptools
import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from mmhash_service.bodies.reading import CYCLE, MIN_PROGRESS
from mmhash_service.limits.text import parse_natural
from mmhash_service.server.body_sink import READ_BYTES, BodyReceiver, BodySink, Consume, Count
from mmhash_service.server.cycle import Cycle

logger = logging.getLogger(__name__)

# Clients and proxies send far less, and most servers accept 8 to 32 KiB. The last read may exceed
# the limit, by up to 256 KiB.
MAX_HEAD = 64 << 10
MAX_HEADERS = 128

# How many requests of a connection may wait for an earlier one.
MAX_PIPELINED = 32

_VERSIONS = frozenset({"1.0", "1.1"})

_ASGI = {"version": "3.0", "spec_version": "2.3"}

# A request ends two of these intervals after its client has closed the connection.
_PROBE_S = 0.5

# Descriptors reserved for other uses: files, the memo store, KV events.
_SPARE_DESCRIPTORS = 128


class RefusedHeadError(ValueError):
    """The head of a request is refused. The client gets the message."""


class BoundedProtocol(asyncio.Protocol):
    """A connection with limits, on which every parser reads the same requests.

    If a proxy might parse a request differently, the server answers 400 and closes the connection.
    It answers a request to upgrade to another protocol in HTTP/1.1.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        stall_timeout_s: float,
    ) -> None:
        del app_state  # no application has a state of its own
        self._app = config.loaded_app
        self._server = server_state
        self._loop = _loop or asyncio.get_running_loop()
        self._stall_timeout_s = stall_timeout_s
        self._keep_alive_s = config.timeout_keep_alive
        self._max_connections = max_connections()
        self._parser = self._new_parser()
        self._timer: asyncio.TimerHandle | None = None
        # Since when the connection has had no request, and the timer that closes it then.
        self._idle_since: float | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        # How many requests have begun. A new connection begins with a head.
        self._messages = 0
        self._in_head = True
        self._in_body = False
        # The bytes since the last head, or the last piece of a body: a head's or a trailer's.
        self._overhead = 0
        self._last_pending: tuple[str, int, int] | None = None
        self._is_half_closed = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        # The newest request, the request being answered, and those that wait for it.
        self._cycle: Cycle | None = None
        self._answering: Cycle | None = None
        self._waiting: deque[tuple[Cycle, Scope]] = deque()
        # The body that is arriving: its bytes so far, its length if known, its consumer if any.
        self._received = 0
        self._length: int | None = None
        self._sink: BodySink | None = None
        self._receiver: BodyReceiver | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, unless there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self._flow = FlowControl(self._transport)
        connections = cast("set[BoundedProtocol]", self._server.connections)
        if len(connections) >= self._max_connections:
            self._transport.abort()
            return
        connections.add(self)
        self._addresses = {
            "server": get_local_addr(self._transport),
            "client": get_remote_addr(self._transport),
        }
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and tell the request being answered."""
        if self._timer is None:  # the connection was never accepted
            return
        cast("set[BoundedProtocol]", self._server.connections).discard(self)
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnect()
        if self._sink is not None:
            self._sink.fail(ClientDisconnect())
        if self._receiver is not None:
            self._receiver.end()
        self._flow.resume_writing()
        if exc is None:
            self._transport.close()

    def pause_writing(self) -> None:
        """Let the response wait until the client reads."""
        self._flow.pause_writing()

    def resume_writing(self) -> None:
        """Continue the response."""
        self._flow.resume_writing()

    def shutdown(self) -> None:
        """Close the connection, after the response that is being sent."""
        if self._cycle is None or self._cycle.response_complete:
            self._transport.close()
        else:
            self._cycle.keep_alive = False

    def eof_received(self) -> bool:
        """Return True to keep the connection for a response that has not begun.

        A client that has gone looks the same as a client that only has nothing more to send.
        """
        if self._is_half_closed:
            return True
        cycle = self._answering
        if self._in_head or self._in_body or cycle is None or cycle is not self._cycle:
            return False
        if cycle.response_started or cycle.version != "1.1":
            return False
        self._is_half_closed = True
        cycle.keep_alive = False
        self._loop.call_later(_PROBE_S, self._probe_client, cycle)
        return True

    def _probe_client(self, cycle: Cycle) -> None:
        """Send an interim response, which a waiting client ignores.

        A client that has gone resets the connection. The next write then fails, and the event loop
        closes the connection.
        """
        if not cycle.response_started and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._loop.call_later(_PROBE_S, self._probe_client, cycle)

    def data_received(self, data: bytes | memoryview) -> None:
        """Parse data, and refuse a head or trailer that is too long."""
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
        if self._transport.is_closing():
            return
        logger.warning(reason)
        cycle = self._answering
        # During a response, a refusal would become a part of it.
        if cycle is None or not cycle.response_started or cycle.response_complete:
            head = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            response = b"HTTP/1.1 400 Bad Request\r\n%bcontent-length: %d\r\n\r\n%b"
            self._transport.write(response % (head, len(reason), reason.encode()))
        self._transport.close()

    def _parse(self, data: bytes | memoryview) -> bytes:
        """Parse data, and return what must be parsed next, if anything."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The parser expects another protocol after this head, and would take the body for the
            # next request. Parse the request again, without the Upgrade header.
            head = self._head_without_upgrade()
            self._parser = self._new_parser()
            return head + bytes(data[upgrade.args[0] :])
        return b""

    def _head_without_upgrade(self) -> bytes:
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        lines = [b"%b: %b" % header for header in self._headers if header[0] != b"upgrade"]
        return b"\r\n".join([b"%b %b HTTP/%b" % (method, self._url, version), *lines, b"", b""])

    def on_message_begin(self) -> None:
        """Begin the head of a request."""
        self._idle_since = None
        self._messages += 1
        self._in_head = True
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        """Store a part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Ignore trailers, but refuse one that closes the connection."""
        if self._in_head:
            self._headers.append((name.lower(), value))
        elif b"close" in value.lower() and name.lower().endswith(b"connection"):
            # The parser would drop all that follows, and the connection would stay open.
            raise RefusedHeadError("A trailer closes the connection.")

    def on_headers_complete(self) -> None:
        """Begin the request, unless its head is refused or parsed again."""
        self._in_head, self._in_body = False, True
        self._overhead = self._received = 0
        self._sink = None
        method, version = self._parser.get_method(), self._parser.get_http_version()
        expects_100 = self._check_head(method, version)
        if self._parser.should_upgrade():
            return
        target = httptools.parse_url(self._url)
        path = target.path.decode("ascii")
        # A proxy that gets a final response instead of 100 sends no body. Its next request on this
        # connection, perhaps of another client, would be read as the body.
        keep_alive = version == "1.1" and self._parser.should_keep_alive() and not expects_100
        cycle = Cycle(
            self._transport,
            self._flow,
            self._server,
            method=method.decode(),
            version=version,
            receive_rest=self._receive_rest,
            complete=self._on_response_complete,
            keep_alive=keep_alive,
            waits_for_100=expects_100,
        )
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            **self._addresses,
            "scheme": "http",
            "root_path": "",
            "method": method.decode(),
            "path": unquote(path) if "%" in path else path,
            "raw_path": target.path,
            "query_string": target.query or b"",
            "headers": self._headers,
            CYCLE: cycle,
        }
        before, self._cycle = self._cycle, cycle
        if before is None or before.response_complete:
            self._start(cycle, scope)
        else:
            self._flow.pause_reading()
            self._waiting.append((cycle, scope))

    def _check_head(self, method: bytes, version: str) -> bool:
        """Refuse a head that a proxy might read differently. Return True if it expects 100."""
        if len(self._headers) > MAX_HEADERS:
            raise RefusedHeadError(f"The request has more than {MAX_HEADERS} headers.")
        if len(self._waiting) >= MAX_PIPELINED:
            raise RefusedHeadError(
                f"{MAX_PIPELINED} requests of this connection are already waiting."
            )
        if method == b"CONNECT":
            raise RefusedHeadError("CONNECT is not supported.")
        if b"#" in self._url:  # a proxy's rules may see the fragment as a part of the path
            raise RefusedHeadError("The target of the request has a fragment.")
        if version not in _VERSIONS:
            raise RefusedHeadError("The version is neither HTTP/1.0 nor HTTP/1.1.")
        expects_100 = False
        lengths: list[bytes] = []
        codings: list[bytes] = []
        for name, value in self._headers:
            if name == b"content-length":
                lengths.append(value)
            elif name == b"transfer-encoding":
                codings.append(value.strip().lower())
            elif name == b"expect":
                expects_100 |= value.lower() == b"100-continue"
        if codings and (version != "1.1" or codings != [b"chunked"]):
            raise RefusedHeadError("Transfer-Encoding must be chunked, once, in HTTP/1.1.")
        self._length = parse_natural(lengths[0].strip().decode("latin-1")) if lengths else None
        if lengths and self._length is None:
            raise RefusedHeadError("The Content-Length is not a number below 2**63.")
        return expects_100

    def on_body(self, body: bytes | memoryview) -> None:
        """Pass on a piece of the body."""
        self._overhead = 0
        self._received += len(body)
        if self._sink is not None:
            self._sink.count(len(body))
            self._sink.feed(body)
        elif self._cycle is not None:
            self._cycle.feed(body)

    def on_message_complete(self) -> None:
        """End the body."""
        self._in_body = False
        if self._cycle is not None and not self._parser.should_upgrade():
            self._cycle.end_body()
            self._note_idle()
        if self._sink is not None:
            self._sink.complete()
        if self._receiver is not None:
            self._receiver.end()
            self._receiver = None
            if not self._transport.is_closing():
                self._transport.set_protocol(self)

    async def _receive_rest(self, consume: Consume, count: Count) -> None:
        """Pass each piece of a body to `consume`, and return at the end of the body."""
        sink = self._sink = BodySink(consume, count, self._loop)
        self._receiver = BodyReceiver(
            self, self.body_bytes_received, self._readable, self._flow, self._loop
        )
        self._transport.set_protocol(self._receiver)
        self._flow.resume_reading()
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
        self.on_body(piece)
        if self._received == self._length:
            self._parser = self._new_parser()  # the old parser still waits for this body
            self.on_message_complete()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return parser

    def _start(self, cycle: Cycle, scope: Scope) -> None:
        self._answering = cycle
        task = self._loop.create_task(cycle.run(self._app, scope))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def _on_response_complete(self) -> None:
        if self._transport.is_closing():
            return
        self._flow.resume_reading()
        if self._waiting:
            self._start(*self._waiting.popleft())
        else:
            self._note_idle()

    def _note_idle(self) -> None:
        """Start the idle time if the last request and its response are complete."""
        if self._in_head or self._in_body or self._cycle is None:
            return
        if not self._cycle.response_complete:
            return
        self._idle_since = self._loop.time()
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(self._keep_alive_s, self._on_idle_timer)

    def _on_idle_timer(self) -> None:
        """Close the connection if it has had no request for a while."""
        self._idle_timer = None
        if self._idle_since is None:
            return
        left = self._idle_since + self._keep_alive_s - self._loop.time()
        if left > 0:
            self._idle_timer = self._loop.call_later(left, self._on_idle_timer)
        else:
            self._transport.close()

    def _start_timer(self) -> None:
        # One timer per connection, not per request.
        self._timer = self._loop.call_later(self._stall_timeout_s, self.on_timer)

    def on_timer(self) -> None:
        """Close the connection if the client has gone, or has made no progress since the last call.

        While requests wait for an earlier one, nothing is read, so only the timer notices that the
        client has gone.
        """
        pending = self.pending_client_action()
        has_hung_up = self._flow.read_paused and _has_hung_up(self._transport)
        is_gone = has_hung_up and not self.eof_received()
        if is_gone or (pending is not None and pending == self._last_pending):
            self._transport.abort()
            return
        self._last_pending = pending
        self._start_timer()

    def pending_client_action(self) -> tuple[str, int, int] | None:
        """Return what the client must do next: read a response, or send a head or a body.

        The value changes as the client makes progress. None means that it is the server's turn.
        """
        if unread := self._transport.get_write_buffer_size():
            return "read", self._messages, unread // MIN_PROGRESS
        if self._cycle is not None and not self._cycle.response_complete:
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


def max_connections() -> int:
    """Return how many connections fit beside the reserved descriptors.

    Each request may take a second descriptor, for a connection to a worker or to the host of a URL.
    A gateway without descriptors would take its workers for unreachable, and eject them all.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(1, (descriptors - _SPARE_DESCRIPTORS) // 2)
