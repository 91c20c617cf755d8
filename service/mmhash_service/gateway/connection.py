"""HTTP/1.1 to workers: request heads, connections, and a pool of idle connections per worker.

The gateway does not use httpx, which costs more per streamed response (bench/gateway.py). It must
also be able to abort a request from another task, when a worker is ejected or a client disconnects.
"""

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from functools import cache
from typing import ClassVar, cast

import httptools
import httpx

from mmhash.engines.caller_fields import PEER_HEADERS
from mmhash.tags import TENANT_TAG_HEADER
from mmhash_service.limits.text import SINGLE_VALUED

Header = tuple[bytes, bytes]

# Hop-by-hop headers (RFC 9110, 7.6.1). Upgrade is dropped too: the gateway forwards only HTTP.
_OF_ONE_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

# The gateway sets Host, Content-Length, X-Request-Id and the tenant's tag itself. It has already
# answered Expect, and clients may not name peers.
_NOT_SENT = _OF_ONE_HOP.union(
    {b"host", b"content-length", b"expect", b"x-request-id", TENANT_TAG_HEADER},
    {name.encode() for name in PEER_HEADERS},
)
_NOT_SENT_WITH_KEYS = _NOT_SENT | {b"authorization"}

# The gateway's HTTP server adds these itself.
_NOT_RETURNED = _OF_ONE_HOP | {b"date", b"x-request-id"}


def for_worker(headers: Sequence[Header], *, keep_authorization: bool) -> list[Header]:
    """Return the client's headers that go to a worker."""
    return _end_to_end(headers, _NOT_SENT if keep_authorization else _NOT_SENT_WITH_KEYS)


def for_client(headers: Sequence[Header]) -> list[Header]:
    """Return the worker's headers that go to the client."""
    return _end_to_end(headers, _NOT_RETURNED)


def request_head(
    method: bytes, target: bytes, host: bytes, headers: Iterable[Header], length: int | None
) -> bytes:
    """Return the head of a request. `length` is the body's, or None without a body."""
    lines = [b"%b %b HTTP/1.1\r\nhost: %b" % (method, target, host)]
    lines += [b"%b: %b" % header for header in headers]
    if length is not None:
        lines.append(b"content-length: %d" % length)
    return b"\r\n".join([*lines, b"", b""])


def _end_to_end(headers: Sequence[Header], dropped: frozenset[bytes]) -> list[Header]:
    if connections := [value for name, value in headers if name == b"connection"]:
        named = {token.strip().lower() for token in b",".join(connections).split(b",")}
        # Keep these headers although the client names them in Connection. Without one, the worker
        # would read a different request: for its default tenant, for example.
        dropped |= named - SINGLE_VALUED
    return [header for header in headers if header[0] not in dropped]


# Limits for the head of a response.
MAX_HEAD = 64 << 10
MAX_HEADERS = 256

# Stop reading from the worker while this many body bytes wait for the client.
_HIGH_WATER = 256 << 10


class WorkerError(Exception):
    """A worker did not answer completely. The message is for the log."""

    is_silent: ClassVar[bool] = False
    """True if the worker may be hanging. Its other requests would then wait in vain."""


class UnreachableError(WorkerError):
    """There is no connection, so the worker has seen nothing of the request."""

    is_silent = True


class RefusedError(UnreachableError):
    """The worker refuses connections: it has exited, or is finishing its last requests."""

    is_silent = False


class BrokenError(WorkerError):
    """The connection was lost, or the worker did not send valid HTTP."""


class SilentError(BrokenError):
    """The worker sent nothing for longer than the setting worker_timeout_s."""

    is_silent = True


class Connection(asyncio.Protocol):
    """A connection to a worker, for one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._error: BrokenError | None = None
        self.is_closed = False
        self.used_at = self._loop.time()
        self._begin(b"GET")

    def _begin(self, method: bytes) -> None:
        self._method = method
        self.status = 0
        self.headers: list[Header] = []
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._head_bytes = 0
        self._has_head = self._is_complete = self._until_close = self._is_paused = False
        self.is_reusable = False
        self.has_body = False
        """The first byte of the body has arrived."""

    # The request and its response.

    async def send(
        self,
        method: bytes,
        head: bytes,
        body: list[bytes],
        timeout_s: float,
        *,
        until_body: bool = False,
    ) -> None:
        """Send a request. Wait for the response's head, or for the first byte of its body.

        vLLM sends the head of a stream before it computes the prompt.
        """
        self._begin(method)
        if self._transport is None or self.is_closed:
            raise UnreachableError("the connection was closed before a request was sent")
        self._heard_at = self._loop.time()
        self._timeout_s = timeout_s
        # Requests on a connection share a timer, unless an earlier request had more time.
        if self._timer is not None and self._timer.when() > self._heard_at + timeout_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_later(timeout_s, self._check_silence)
        self._transport.writelines([head, *body])
        while not self._has_head or (until_body and not (self._pieces or self._is_complete)):
            await self._wait()

    async def read(self) -> bytes:
        """Return the next bytes of the body, or no bytes at its end."""
        while not self._pieces:
            if self._is_complete:
                return b""
            await self._wait()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []
        self._waiting_bytes = 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._heard_at = self._loop.time()
            self._transport.resume_reading()
        return data

    @property
    def is_read(self) -> bool:
        """True if the whole response has been read."""
        return self._is_complete and not self._pieces

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._error is not None and not (self._pieces or self._is_complete):
            raise self._error

    @property
    def has_sent(self) -> bool:
        """True once the whole request has left this process. A response may come earlier."""
        return self._transport is None or not self._transport.get_write_buffer_size()

    def release(self) -> bool:
        """End the request. Return True if the connection can carry another."""
        if self._is_complete and self.is_reusable and self.has_sent and not self.is_closed:
            self.used_at = self._loop.time()
            return True
        self.abort("released before the end of the response")
        return False

    def abort(self, reason: str) -> None:
        """Close the connection now. A task that waits for the response gets a BrokenError."""
        if self._transport is not None and not self.is_closed:
            self._fail(BrokenError(reason))
            self._transport.abort()

    def _check_silence(self) -> None:
        left = self._heard_at + self._timeout_s - self._loop.time()
        if self._is_complete:
            self._timer = None
        elif self._is_paused or left > 0:
            delay = self._timeout_s if self._is_paused else left
            self._timer = self._loop.call_later(delay, self._check_silence)
        elif self._transport is not None:
            self._fail(SilentError(f"received nothing for {self._timeout_s} s"))
            self._transport.abort()

    def _fail(self, error: BrokenError) -> None:
        self._error = self._error or error
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End a response that has no length. Any other unfinished response is broken now."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._until_close and self._has_head and self._error is None and exc is None:
            self._is_complete = True
        self._fail(BrokenError(f"the worker closed the connection: {exc or 'end of stream'}"))

    def data_received(self, data: bytes) -> None:
        """Parse the data, and wake the reader once."""
        if self._is_complete:  # these bytes would start the next response
            self._break("bytes after a response")
            return
        self._heard_at = self._loop.time()
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"not a response: {error!r}")
        if not self._has_head and self._head_bytes > MAX_HEAD:
            self._break("the head of the response is too long")
        if self._waiting_bytes > _HIGH_WATER and not self._is_paused and not self.is_closed:
            self._is_paused = True
            if self._transport is not None:
                self._transport.pause_reading()
        self._wake()

    def _break(self, reason: str) -> None:
        self._fail(BrokenError(reason))
        if self._transport is not None:
            self._transport.abort()

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Refuse a second response."""
        if self._is_complete:
            raise ValueError("bytes after a response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. Drop trailers."""
        if not self._has_head:
            if len(self.headers) >= MAX_HEADERS:
                raise ValueError("too many headers")
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Complete the head, unless it is interim (1xx)."""
        status = self._parser.get_status_code()
        if not 100 <= status < 600:
            raise ValueError("unknown status")
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings not in ([], [b"chunked"]):  # the client would get a body that it cannot decode
            raise ValueError("a transfer encoding other than chunked")
        if status < 200:
            self.headers = []
            return
        self.status = status
        self._has_head = True
        self.is_reusable = self._parser.should_keep_alive()
        if self._method == b"HEAD":  # the parser would wait for a body of the announced length
            self._is_complete = True
            self.is_reusable = False
        names = {name for name, _ in self.headers}
        has_no_body = status in {204, 304}
        self._until_close = not (
            has_no_body or b"content-length" in names or b"transfer-encoding" in names
        )
        if has_no_body and self._method != b"HEAD":  # nothing follows, whatever the length
            self.headers = [one for one in self.headers if one[0] != b"content-length"]
        # llhttp reads a response without a length until the end of the stream.
        if self._until_close:
            self.is_reusable = False

    def on_body(self, body: bytes) -> None:
        """Keep bytes of the body for the reader."""
        self.has_body = True
        self._pieces.append(body)
        self._waiting_bytes += len(body)

    def on_message_complete(self) -> None:
        """End the response, unless it was interim."""
        if self._has_head:
            self._is_complete = True
            # After a trailer the parser may refuse the next response, so close the connection.
            self.is_reusable &= self._parser.should_keep_alive()


# Shorter than uvicorn's keep-alive time-out in engines, which is 5 s.
_IDLE_S = 4.0
_MAX_IDLE = 256


class Pool:
    """Opens connections to the host of a URL, and keeps idle connections."""

    def __init__(self, url: str, connect_timeout_s: float) -> None:
        parsed = httpx.URL(url)
        self.host_header = parsed.netloc
        self.path_prefix = parsed.raw_path.rstrip(b"/")
        self._host = parsed.host
        self._port = parsed.port or (443 if parsed.scheme == "https" else 80)
        self._is_tls = parsed.scheme == "https"
        self._timeout_s = connect_timeout_s
        self._idle: list[Connection] = []
        self._is_closed = False

    def take_idle(self) -> Connection | None:
        """Return an idle connection, or None."""
        oldest = asyncio.get_running_loop().time() - _IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.used_at > oldest and not connection.is_closed:
                return connection
            connection.abort("idle for too long")
        return None

    async def open(self) -> Connection:
        """Open a connection. Raise UnreachableError if that fails."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                _, connection = await loop.create_connection(
                    Connection, self._host, self._port, ssl=_trust() if self._is_tls else None
                )
        except ConnectionRefusedError as error:
            raise RefusedError("cannot connect: connection refused") from error
        except (OSError, TimeoutError, UnicodeError) as error:  # UnicodeError: the host's IDNA
            reason = getattr(error, "strerror", None) or str(error)
            reason = reason or f"no answer within {self._timeout_s:g} s"
            raise UnreachableError(f"cannot connect: {reason}") from error
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request if it can carry one, or close it."""
        if connection.release():
            if self._is_closed:
                connection.abort("the pool is closed")
            elif len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
            else:
                connection.abort("too many idle connections")

    def close_idle(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().abort("idle connections are closed")

    def close(self) -> None:
        """Close the idle connections now, and every other connection when it is given back."""
        self._is_closed = True
        self.close_idle()


@cache
def _trust() -> ssl.SSLContext:
    """Load the system's certificate authorities. This is slow, so load them once."""
    return ssl.create_default_context()
