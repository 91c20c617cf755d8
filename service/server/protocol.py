"""HTTP as uvicorn speaks it, with bounds where it has none: heads, pipelines, time, connections.

uvicorn's own limits begin with a call, and so with a head that has come whole. Without these here
one header of 200 MB took 300 MB, and calls sent without waiting for their answers 1.2 GB.
"""

import asyncio
import resource
import sys
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mmhash_service.bodies.reading import MIN_PROGRESS

# Clients and proxies send far less, and most servers take no more than 8 to 32 KiB. What uvloop
# reads at once, 256 KiB, may come on top.
MAX_HEAD = 64 << 10
MAX_HEADERS = 128

# Calls that wait behind another one of their connection.
MAX_PIPELINED = 32

_VERSIONS = frozenset({"1.0", "1.1"})

# What connections leave to all else: files, the memo's store, hosts from which is fetched.
_SPARE_DESCRIPTORS = 128


class RefusedHeadError(ValueError):
    """The head of a request is refused; the message is public."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection: its client may not send what fits nowhere, nor keep others waiting for ever.

    A request has one reading: what a gateway may read otherwise is refused with 400, and the
    connection closed. A request to upgrade to another protocol is answered in this one.
    """

    def __init__(self, *arguments: Any, stall_timeout_s: float, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._stall_timeout_s = stall_timeout_s
        self._max_connections = max_connections()
        self._timer: asyncio.TimerHandle | None = None
        # Who connects is to send a head; his first message has not begun yet.
        self._messages = 0
        self._in_head = True
        self._in_body = False
        # How much has come since the last end of a head and the last piece of a body.
        self._overhead = 0
        self._last_pending: tuple[str, int, int] | None = None
        # uvicorn tells of a lost connection the call that came last, and this one would answer on.
        self._answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take on a connection, if there is room for one more."""
        if len(self.connections) >= self._max_connections:
            transport.abort()
            return
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection; one that was not taken on is not known."""
        if self._timer is not None:
            self._timer.cancel()
            if self._answering is not None:
                self._answering.disconnected = True
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data, and refuse what neither ends a head nor is of a body, if it is long."""
        self._unset_keepalive_if_required()
        self._overhead += len(data)
        try:
            while data:
                data = self._parse(data)
        except httptools.HttpParserError as error:
            refused = error.__context__  # what a callback raised
            known = isinstance(refused, RefusedHeadError)
            self._refuse(str(refused) if known else "Invalid HTTP request received.")
        else:
            if self._overhead > MAX_HEAD:
                self._refuse("The head or the trailer of the request is too long.")

    def _refuse(self, reason: str) -> None:
        if not self.transport.is_closing():
            self.logger.warning(reason)
            self.send_400_response(reason)

    def _parse(self, data: bytes) -> bytes:
        """Parse data; return what must be parsed after it, if anything."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The parser takes everything behind this head for another protocol, and the body for
            # the next request. So a new one gets the request again, without the Upgrade header.
            head = self._head_without_upgrade()
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            return head + data[upgrade.args[0] :]
        return b""

    def _head_without_upgrade(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([b"%b %b HTTP/%b" % (method, self.url, version), *lines, b"", b""])

    def on_message_begin(self) -> None:
        """Begin the head of a call."""
        self._messages += 1
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; one behind the body came too late to be believed."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin a call, unless its head is refused or parsed once more."""
        self._in_head, self._in_body = False, True
        self._overhead = 0
        self._check_head()
        if self.parser.should_upgrade():
            return
        super().on_headers_complete()
        if self.expect_100_continue:
            # A proxy that gets an answer in place of 100 does not send the body: the next request
            # of this connection, perhaps of another client, would be taken for the body.
            self.cycle.keep_alive = False

    def _check_head(self) -> None:
        if len(self.headers) > MAX_HEADERS:
            raise RefusedHeadError(f"The request has more than {MAX_HEADERS} headers.")
        if len(self.pipeline) >= MAX_PIPELINED:
            raise RefusedHeadError(f"{MAX_PIPELINED} requests of this connection wait already.")
        if self.parser.get_method() == b"CONNECT":
            raise RefusedHeadError("CONNECT is not supported.")
        version = self.parser.get_http_version()
        if version not in _VERSIONS:
            raise RefusedHeadError("The version is neither HTTP/1.0 nor HTTP/1.1.")
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and (version != "1.1" or [at.strip().lower() for at in codings] != [b"chunked"]):
            raise RefusedHeadError("Transfer-Encoding is chunked, once, in HTTP/1.1.")

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._overhead = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the body."""
        self._in_body = False
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _start_timer(self) -> None:
        # One timer a connection, and none a call: it looks in now and then.
        self._timer = self.loop.call_later(self._stall_timeout_s, self.on_timer)

    def on_timer(self) -> None:
        """Close the connection if its client owes what he owed the last time."""
        owed = self.pending_client_action()
        if owed is not None and owed == self._last_pending:
            self.transport.abort()
            return
        self._last_pending = owed
        self._start_timer()

    def pending_client_action(self) -> tuple[str, int, int] | None:
        """What only the client can go on with: to read an answer, to end a head or a body."""
        if unread := self.transport.get_write_buffer_size():
            return "answer", self._messages, unread // MIN_PROGRESS
        if self.cycle is not None and not self.cycle.response_complete:
            return None  # the call is our turn, and while it reads its body it has a watch itself
        if self._in_head or self._in_body:
            return "head or body", self._messages, 0
        return None


def max_connections() -> int:
    """How many connections a process takes: its descriptors are also for other things."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(1, descriptors - _SPARE_DESCRIPTORS)
