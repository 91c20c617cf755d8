"""A request of a connection and its response: as ASGI, and as functions that ASGI lacks."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from mmhash_service.server.body_sink import Consume, Count

logger = logging.getLogger(__name__)

Header = tuple[bytes, bytes]

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

_WITHOUT_BODY = frozenset({204, 304})


class Cycle:
    """A request and its response.

    The head of the response waits for the first piece of the body, so that one write sends both.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        flow: FlowControl,
        server: ServerState,
        *,
        method: str,
        version: str,
        receive_rest: Callable[[Consume, Count], Awaitable[None]],
        complete: Callable[[], None],
        keep_alive: bool,
        waits_for_100: bool,
    ) -> None:
        """Begin a request.

        `receive_rest` passes on the rest of the body. `complete` is called at the end of the
        response.
        """
        self._transport = transport
        self._flow = flow
        self._server = server
        self._method = method
        self._receive_rest = receive_rest
        self._complete = complete
        self.keep_alive = keep_alive
        self.version = version
        self._is_chunked = version == "1.1"  # other clients do not understand chunks
        self._waits_for_100 = waits_for_100
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._cancels = False
        self.is_disconnected = False
        # The part of the body that has arrived, but was not received.
        self._body = bytearray()
        self.has_whole_body = False
        self._head: list[bytes] = []
        # How many bytes of the response's body are still to come, if its length is known.
        self._unsent: int | None = None
        self.response_started = self.response_complete = False

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Run the application. A failure without a response becomes a response."""
        self._task = asyncio.current_task()
        try:
            await app(scope, self.receive, self.send)
        except BaseException:  # nobody awaits this task
            if not (self.is_disconnected and self._cancels):
                logger.exception("the application failed")
        if self.response_complete or self.is_disconnected:
            return
        if self.response_started:
            self._transport.close()  # the client sees that the response breaks off
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"21")]
        self.keep_alive = False
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": b"Internal Server Error"})

    # The request.

    def feed(self, piece: bytes | memoryview) -> None:
        """Keep a piece of the body until it is received."""
        if not self.response_complete:
            self._body += piece
            if len(self._body) > HIGH_WATER_LIMIT:
                self._flow.pause_reading()
            self._news.set()

    def end_body(self) -> None:
        """End the body."""
        self.has_whole_body = True
        self._news.set()

    def disconnect(self) -> None:
        """Note that the client has disconnected."""
        self.is_disconnected = True
        self._news.set()
        if self._cancels and self._task is not None:
            self._task.cancel()

    async def receive(self) -> Message:
        """Return the next message, as ASGI defines it."""
        self._continue()
        if not self.is_disconnected and not self.response_complete:
            self._flow.resume_reading()
            await self._news.wait()
            self._news.clear()
        if self.is_disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body = self.take_body()
        return {"type": "http.request", "body": body, "more_body": not self.has_whole_body}

    async def receive_body(self, consume: Consume, count: Count) -> None:
        """Pass each piece of the body to `consume`, and return at the end of the body."""
        if self.is_disconnected or self._transport.is_closing():
            raise ClientDisconnect
        self._continue()
        arrived = self.take_body()
        count(len(arrived))
        consume(arrived)
        if not self.has_whole_body:
            await self._receive_rest(consume, count)

    def take_body(self) -> bytes:
        """Return the part of the body that has arrived since the last call."""
        arrived, self._body = bytes(self._body), bytearray()
        return arrived

    def _continue(self) -> None:
        if self._waits_for_100 and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._waits_for_100 = False

    def watch(self, *, cancels: bool) -> None:
        """Say whether a disconnect of the client cancels the application from now on."""
        self._cancels = cancels
        if cancels and self.is_disconnected and self._task is not None:
            self._task.cancel()

    # The response.

    async def send(self, message: Message) -> None:
        """Send a part of the response, as ASGI defines it."""
        if self._flow.write_paused and not self.is_disconnected:
            await self._flow.drain()
        if self.is_disconnected:
            return
        kind = "http.response.body" if self.response_started else "http.response.start"
        if message["type"] != kind or self.response_complete:
            raise RuntimeError(f"unexpected ASGI message {message['type']}")
        if self.response_started:
            self._send_body(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            self._begin_response(message["status"], message.get("headers", ()))

    def _begin_response(self, status: int, headers: Iterable[Header]) -> None:
        self._waits_for_100 = False
        lines = [b"%b: %b" % header for header in self._server.default_headers]
        for name, value in headers:
            if name == b"content-length":
                self._unsent = int(value)
            elif name == b"connection":
                self.keep_alive &= value != b"close"
                continue
            lines.append(b"%b: %b" % (name, value))
        if _CONTROL.search(b"".join(lines)):
            raise RuntimeError("a header of the response has a control character")
        if not self.keep_alive:
            lines.append(b"connection: close")
        if status in _WITHOUT_BODY:
            self._unsent = 0
        self._is_chunked &= self._unsent is None and self._method != "HEAD"
        if self._is_chunked:
            lines.append(b"transfer-encoding: chunked")
        self._head = [STATUS_LINE[status] + b"\r\n".join([*lines, b"", b""])]
        self.response_started = True

    def _send_body(self, piece: bytes, *, is_last: bool) -> None:
        parts, self._head = self._head, []
        if self._method == "HEAD":
            pass
        elif self._is_chunked:
            if piece:
                parts += [b"%x\r\n" % len(piece), piece, b"\r\n"]
            if is_last:
                parts.append(b"0\r\n\r\n")
        else:
            if self._unsent is not None:
                self._unsent -= len(piece)
                if self._unsent < 0 or (is_last and self._unsent):
                    raise RuntimeError("the response is longer or shorter than its Content-Length")
            if piece:
                parts.append(piece)
        if parts:
            self._transport.writelines(parts)
        if is_last:
            self.response_complete = True
            self._news.set()
            if not self.keep_alive:
                self._transport.close()
            self._complete()
