"""Connection pools to the service.

httpcore follows no redirects, keeps no cookies and decodes no content.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, closing
from typing import Any, NamedTuple

import httpcore
import httpx

import mmhash
from mmhash.client.address import Address
from mmhash.client.backend import AsyncBackend, Backend
from mmhash.client.bounds import bounded
from mmhash.client.effects import Request
from mmhash.client.responses import Response, malformed
from mmhash.errors import ClosedError, InputValueError, MMHashError
from mmhash.forks import check_not_forked

# The default of httpx; further requests wait for a free connection, until their deadline.
_MAX_CONNECTIONS = 100
_MAX_IDLE_CONNECTIONS = 20
# Less than the 5 s after which uvicorn closes an idle connection.
_IDLE_S = 4.0

_HEADERS = [
    (b"Accept", b"application/json"),
    (b"Accept-Encoding", b"identity"),
    (b"User-Agent", b"mmhash/" + mmhash.__version__.encode()),
]


class Service(NamedTuple):
    """The address of the service, and the headers of all requests of one client."""

    address: Address
    headers: list[tuple[bytes, bytes]]

    def request(self, request: Request, content: Any, seconds: float) -> httpcore.Request:
        """Return the request for httpcore; of its time-outs only that of the pool has an effect."""
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
        """Return the arguments of both pools of httpcore."""
        ssl_context = None
        if self.address.scheme == "https":
            try:
                ssl_context = httpx.create_ssl_context()
            except OSError as error:  # SSL_CERT_FILE or SSL_CERT_DIR
                raise InputValueError(f"the certificates cannot be read: {error}") from error
        return {
            "ssl_context": ssl_context,
            "proxy": self.address.proxy,
            "uds": self.address.uds,
            "max_connections": _MAX_CONNECTIONS,
            "max_keepalive_connections": _MAX_IDLE_CONNECTIONS,
            "keepalive_expiry": _IDLE_S,
        }


class Connections:
    """The connections of a `Client`, for any number of threads of the process that made it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._pool: httpcore.ConnectionPool | None = httpcore.ConnectionPool(
            network_backend=Backend(), **service.pool_options()
        )

    def send(self, request: Request, deadline: float) -> Response:
        """Return the response to a request, received before the deadline."""
        check_not_forked("Client", self._owner)
        with self._lock:
            pool = self._pool
        if pool is None:
            raise ClosedError("this Client is closed")
        with bounded(request, deadline) as bounds:
            seconds = bounds.seconds_left(httpcore.PoolTimeout)
            response = pool.handle_request(
                self._service.request(request, request.chunks(), seconds)
            )
            return _receive(response, request.limit)

    def close(self) -> None:
        """Close the connections; current and later requests fail. A forked child closes nothing."""
        if self._owner != os.getpid():
            return
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


class AsyncConnections:
    """The connections of an `AsyncClient`, for one event loop at a time.

    They are closed with their loop; the next loop gets a new pool.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._owner = os.getpid()
        self._closed = False
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: httpcore.AsyncConnectionPool | None = self._new_pool()
        self._closing: AsyncGenerator[None, None] | None = None

    def _new_pool(self) -> httpcore.AsyncConnectionPool:
        return httpcore.AsyncConnectionPool(
            network_backend=AsyncBackend(), **self._service.pool_options()
        )

    async def _pool_of_loop(self) -> httpcore.AsyncConnectionPool:
        check_not_forked("AsyncClient", self._owner)
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                raise ClosedError("this AsyncClient is closed")
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

    async def send(self, request: Request, deadline: float) -> Response:
        """Return the response to a request, received before the deadline."""
        pool = await self._pool_of_loop()
        with bounded(request, deadline) as bounds:
            seconds = bounds.seconds_left(httpcore.PoolTimeout)
            chunks = request.chunks()
            content = None if chunks is None else _async_iterator(chunks)
            try:
                async with asyncio.timeout(seconds):
                    response = await pool.handle_async_request(
                        self._service.request(request, content, seconds)
                    )
                    return await _receive_async(response, request.limit)
            except TimeoutError as error:
                raise httpcore.ReadTimeout from error

    async def close(self) -> None:
        """Close the connections; current and later requests fail."""
        with self._lock:
            self._closed = True
            loop, generator = self._loop, self._closing
            self._pool = self._loop = self._closing = None
        if generator is not None and loop is asyncio.get_running_loop():
            await generator.aclose()


def _receive(response: httpcore.Response, limit: int) -> Response:
    """Read a response up to a limit, and close it."""
    with closing(response):
        received = Response.begin(response, limit)
        for chunk in response.iter_stream():
            if not received.append(chunk):
                return received
        if _has_leftover(response):
            response.extensions["network_stream"].close()
            malformed("it is longer than announced")
    return received


async def _receive_async(response: httpcore.Response, limit: int) -> Response:
    """Read a response as `_receive` does."""
    async with aclosing(response):
        received = Response.begin(response, limit)
        async for chunk in response.aiter_stream():
            if not received.append(chunk):
                return received
        if _has_leftover(response):
            await response.extensions["network_stream"].aclose()
            malformed("it is longer than announced")
    return received


def _has_leftover(response: httpcore.Response) -> bool:
    """Return True if bytes follow a response: they would be read as the head of the next one.

    httpcore has no public name for them. A test fails if its internals change.
    """
    stream: Any = response.stream
    leftover, _ = stream._stream._connection._h11_state.trailing_data
    return bool(leftover)


async def _close_with_loop(pool: httpcore.AsyncConnectionPool) -> AsyncGenerator[None, None]:
    """Close a pool when its event loop shuts down its asynchronous generators, or before."""
    try:
        yield
    finally:
        await pool.aclose()


async def _async_iterator(chunks: Iterator[Any]) -> AsyncIterator[Any]:
    for chunk in chunks:
        yield chunk
