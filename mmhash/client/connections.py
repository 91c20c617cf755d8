"""Connections to the service: bounded in time and in bytes, never shared with a forked child.

httpcore follows no redirects, keeps no cookies and decodes nothing. Its time-outs count from the
last byte that came; the streams here bound a request as a whole.
"""

import asyncio
import os
import select
import socket
import ssl
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing, closing, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

import httpcore
import httpx

import mmhash
from mmhash.client.address import Address
from mmhash.client.answers import MAX_REFUSAL, Answer, AnswerTooLongError, malformed
from mmhash.client.effects import Request
from mmhash.errors import InputValueError, MMHashError

# As many as httpx has by default; further calls wait for one of them, within their time.
_MAX_CONNECTIONS = 100
_MAX_IDLE_CONNECTIONS = 20
# Shorter than the 5 s after which uvicorn closes a connection that is not used.
_IDLE_S = 4.0
# Room for what surrounds a body: the head, interim answers, the lengths of chunks.
_MAX_SURROUNDING = 256 << 10

_HEADERS = [
    (b"Accept", b"application/json"),
    (b"Accept-Encoding", b"identity"),
    (b"User-Agent", b"mmhash/" + mmhash.__version__.encode()),
]


class _Bounds:
    """The limits of one request: a moment of the monotonic clock, and bytes to receive."""

    def __init__(self, deadline: float, nbytes: int) -> None:
        self._deadline = deadline
        self._nbytes = nbytes

    def seconds_left(self, late: type[Exception]) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise late
        return left

    def count(self, nbytes: int) -> None:
        self._nbytes -= nbytes
        if self._nbytes < 0:
            raise AnswerTooLongError


_bounds: ContextVar[_Bounds] = ContextVar("mmhash_client_bounds")


@contextmanager
def _bounded(request: Request, deadline: float) -> Iterator[_Bounds]:
    limit = max(request.limit, MAX_REFUSAL)
    # A chunk may have as many bytes of its own as it brings.
    bounds = _Bounds(deadline, 2 * limit + _MAX_SURROUNDING)
    token = _bounds.set(bounds)
    try:
        yield bounds
    finally:
        _bounds.reset(token)


class Service(NamedTuple):
    """The service as all connections of a client see it: its address, the caller's headers."""

    address: Address
    headers: list[tuple[bytes, bytes]]

    def request(self, request: Request, content: Any, seconds: float) -> httpcore.Request:
        """The request as httpcore takes it; its streams use the bounds of the call instead."""
        return httpcore.Request(
            request.method,
            self.address.target(request.target()),
            headers=[
                (b"Host", self.address.netloc),
                *_HEADERS,
                *self.headers,
                *request.headers(),
            ],
            content=content,
            extensions={"timeout": dict.fromkeys(("pool", "connect", "read", "write"), seconds)},
        )

    def pool_options(self) -> dict[str, Any]:
        """The arguments of either pool of httpcore."""
        trust = None
        if self.address.scheme == "https":
            try:
                trust = httpx.create_ssl_context()
            except OSError as error:  # SSL_CERT_FILE or SSL_CERT_DIR
                raise InputValueError(f"the certificates cannot be read: {error}") from error
        return {
            "ssl_context": trust,
            "proxy": self.address.proxy,
            "uds": self.address.uds,
            "max_connections": _MAX_CONNECTIONS,
            "max_keepalive_connections": _MAX_IDLE_CONNECTIONS,
            "keepalive_expiry": _IDLE_S,
        }


class Connections:
    """The connections of a `Client`: for any number of threads, and of this process only."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._closed = False
        self._pool: httpcore.ConnectionPool | None = None
        self._begin()
        self._pool = self._new_pool()
        _all.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._pool = None
        self._backend = _Backend()

    def _new_pool(self) -> httpcore.ConnectionPool:
        return httpcore.ConnectionPool(
            network_backend=self._backend, **self._service.pool_options()
        )

    def after_fork(self) -> None:
        """In a child: close this process's copies of the sockets, and connect anew when asked."""
        streams = list(self._backend.streams)
        self._begin()
        for stream in streams:
            stream.abandon()

    def send(self, request: Request, deadline: float) -> Answer:
        """The answer to a request, received until the deadline."""
        with self._lock:
            if self._closed:
                raise MMHashError("this Client is closed")
            if self._pool is None:
                self._pool = self._new_pool()
            pool = self._pool
        with _bounded(request, deadline) as bounds:
            seconds = bounds.seconds_left(httpcore.PoolTimeout)
            response = pool.handle_request(
                self._service.request(request, request.pieces(), seconds)
            )
            with closing(response):
                answer = Answer.begin(response, request.limit)
                for piece in response.iter_stream():
                    if not answer.take(piece):
                        return answer
                if _has_leftover(response):
                    response.extensions["network_stream"].close()
                    malformed("more came than it announced")
            return answer

    def close(self) -> None:
        """Close the connections; calls under way fail, and so do later ones."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


class AsyncConnections:
    """The connections of an `AsyncClient`: of one event loop, and of this process only.

    A loop that was closed took its connections along: the next one has its own.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: httpcore.AsyncConnectionPool | None = None
        self._closing: AsyncGenerator[None, None] | None = None
        self._begin()
        self._pool = self._new_pool()
        _all.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._loop = self._pool = self._closing = None

    def _new_pool(self) -> httpcore.AsyncConnectionPool:
        return httpcore.AsyncConnectionPool(
            network_backend=_AsyncBackend(), **self._service.pool_options()
        )

    def after_fork(self) -> None:
        """In a child: leave the parent's connections alone, and connect anew when asked.

        Closing a transport of asyncio here would change the parent's epoll instance, which a child
        shares; so they are kept as they are.
        """
        _abandoned.append((self._loop, self._pool, self._closing))
        self._begin()

    async def _pool_of_loop(self) -> httpcore.AsyncConnectionPool:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                raise MMHashError("this AsyncClient is closed")
            if self._loop is loop and self._pool is not None:
                return self._pool
            if self._loop is not None and not self._loop.is_closed():
                raise MMHashError(
                    "this AsyncClient belongs to another event loop: make one for each"
                )
            if self._pool is None or self._loop is not None:
                self._pool = self._new_pool()
            self._loop, pool = loop, self._pool
            self._closing = generator = _close_with_loop(pool)
        await anext(generator)
        return pool

    async def send(self, request: Request, deadline: float) -> Answer:
        """The answer to a request, received until the deadline."""
        pool = await self._pool_of_loop()
        with _bounded(request, deadline) as bounds:
            seconds = bounds.seconds_left(httpcore.PoolTimeout)
            pieces = request.pieces()
            content = None if pieces is None else _one_by_one(pieces)
            try:
                async with asyncio.timeout(seconds):
                    response = await pool.handle_async_request(
                        self._service.request(request, content, seconds)
                    )
                    async with aclosing(response):
                        answer = Answer.begin(response, request.limit)
                        async for piece in response.aiter_stream():
                            if not answer.take(piece):
                                return answer
                        if _has_leftover(response):
                            await response.extensions["network_stream"].aclose()
                            malformed("more came than it announced")
                    return answer
            except TimeoutError as error:
                raise httpcore.ReadTimeout from error

    async def close(self) -> None:
        """Close the connections; calls under way fail, and so do later ones."""
        with self._lock:
            self._closed = True
            loop, generator = self._loop, self._closing
            self._pool = self._loop = self._closing = None
        if generator is not None and loop is asyncio.get_running_loop():
            await generator.aclose()


def _has_leftover(response: httpcore.Response) -> bool:
    """Whether bytes came behind an answer: they would be read as the head of the next one.

    httpcore has no name for them. A test says when its inside is another.
    """
    stream: Any = response.stream
    leftover, _ = stream._stream._connection._h11_state.trailing_data
    return bool(leftover)


async def _close_with_loop(pool: httpcore.AsyncConnectionPool) -> AsyncGenerator[None, None]:
    """Close a pool at the latest when its event loop shuts its asynchronous generators down."""
    try:
        yield
    finally:
        await pool.aclose()


async def _one_by_one(pieces: Iterator[Any]) -> AsyncIterator[Any]:
    for piece in pieces:
        yield piece


# The clients of this process, and what a child has from its parent.
_all: weakref.WeakSet[Connections | AsyncConnections] = weakref.WeakSet()
_abandoned: list[Any] = []


def _after_fork() -> None:
    for connections in list(_all):
        connections.after_fork()


os.register_at_fork(after_in_child=_after_fork)


class _Backend(httpcore.NetworkBackend):
    """Makes connections whose every wait ends with the call's time."""

    def __init__(self) -> None:
        self.streams: weakref.WeakSet[_Stream] = weakref.WeakSet()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002  (the call's bounds count)
        local_address: str | None = None,  # noqa: ARG002  (none is asked for)
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        try:
            seconds = _bounds.get().seconds_left(httpcore.ConnectTimeout)
            connected = socket.create_connection((host, port), seconds)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from error
        return _Stream(connected, self)

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ARG002  (as above)
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.settimeout(_bounds.get().seconds_left(httpcore.ConnectTimeout))
            connected.connect(path)
        except BaseException as error:
            connected.close()
            if isinstance(error, TimeoutError):
                raise httpcore.ConnectTimeout(str(error)) from error
            if isinstance(error, OSError):
                raise httpcore.ConnectError(str(error)) from error
            raise
        return _Stream(connected, self)


class _Stream(httpcore.NetworkStream):
    """One socket, within the bounds of the request that uses it."""

    def __init__(self, connected: socket.socket, backend: _Backend) -> None:
        self._socket = connected
        self._backend = backend
        self._owner = os.getpid()
        backend.streams.add(self)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        self._check_owner()
        bounds = _bounds.get()
        try:
            self._socket.settimeout(bounds.seconds_left(httpcore.ReadTimeout))
            received = self._socket.recv(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error
        bounds.count(len(received))
        return received

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._check_owner()
        bounds = _bounds.get()
        left = memoryview(buffer)
        try:
            while left:
                self._socket.settimeout(bounds.seconds_left(httpcore.WriteTimeout))
                left = left[self._socket.send(left) :]
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:  # forked in the middle of a request
            raise httpcore.ReadError("the connection belongs to the parent process")

    def abandon(self) -> None:
        """Close a child's copy of the socket: no byte is sent, and the parent's stays open."""
        self._socket.close()

    def close(self) -> None:
        if os.getpid() == self._owner:
            # Else a thread that waits for this socket would do so until its time is up.
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        self._socket.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        if isinstance(self._socket, ssl.SSLSocket):
            self.close()
            raise httpcore.ConnectError("a proxy at https:// cannot carry an https:// service")
        try:
            self._socket.settimeout(_bounds.get().seconds_left(httpcore.ConnectTimeout))
            wrapped = ssl_context.wrap_socket(self._socket, server_hostname=server_hostname)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise httpcore.ConnectTimeout(str(error)) from error
            if isinstance(error, (OSError, ValueError)):
                raise httpcore.ConnectError(str(error)) from error
            raise
        return _Stream(wrapped, self._backend)

    def get_extra_info(self, info: str) -> Any:
        if info == "socket":
            return self._socket
        if info == "is_readable":
            return _is_readable(self._socket)
        return None


class _AsyncBackend(httpcore.AnyIOBackend):
    """Makes connections that count the bytes of each answer; asyncio.timeout bounds the time."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore's signature)
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            stream = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        except UnicodeError as error:
            raise httpcore.ConnectError(str(error)) from error
        return _AsyncStream(stream)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore's signature)
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _AsyncStream(await super().connect_unix_socket(path, timeout, socket_options))


class _AsyncStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._owner = os.getpid()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        received = await self._stream.read(max_bytes, timeout)
        _bounds.get().count(len(received))
        return received

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        if os.getpid() == self._owner:  # a child closes nothing of its parent's event loop
            await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  (httpcore's signature)
    ) -> httpcore.AsyncNetworkStream:
        return _AsyncStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _is_readable(connected: socket.socket) -> bool:
    """An idle connection that can be read has ended, or has what nobody asked for."""
    number = connected.fileno()
    if number < 0:
        return True
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))
