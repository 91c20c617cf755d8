"""The two clients, which send the same requests: one blocks, the other is awaited.

Each method wraps a function of `calls`, with the signature and docstring of that function.
"""

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial, update_wrapper
from inspect import Parameter, signature
from os import PathLike
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, get_args

import httpx

import mmhash
from mmhash.arguments import check_int, check_seconds, check_str, header_value
from mmhash.client import calls
from mmhash.client.calls import Call
from mmhash.client.exchange import Attempts, Request, body_of
from mmhash.client.shared import SharedCopy, SharedItems
from mmhash.errors import ClosedError, InputValueError, MMHashError, ServiceError
from mmhash.forks import check_not_forked

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])

DEFAULT_URL = "http://127.0.0.1:8780"
_MAX_TIMEOUT_S = 86_400
# Reading a shorter response takes less time than handing it to a thread.
_READ_INLINE_MAX = 64 << 10
# Close idle connections before uvicorn does, by default after 5 s.
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=4.0)


def _blocking(build: Callable[P, Call[T]]) -> "Callable[Concatenate[Client, P], T]":
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(partial(build, *args, **kwargs))

    return _described(method, build)


def _awaitable(
    build: Callable[P, Call[T]],
) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]":
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(partial(build, *args, **kwargs))

    return _described(method, build)


def _described(method: M, build: Callable[P, Call[T]]) -> M:
    """Copy the name, docstring and signature of a function to its method, for `help()`."""
    described = signature(build)
    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    (result,) = get_args(described.return_annotation)
    update_wrapper(method, build)
    vars(method).pop("__wrapped__")  # otherwise help() shows the result as a Call
    method.__signature__ = described.replace(  # type: ignore[attr-defined]
        parameters=[own, *described.parameters.values()], return_annotation=result
    )
    method.__annotations__ = build.__annotations__ | {"return": result}
    return method


class _Common(ABC):
    """The options and state that both clients share."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        uds: str | PathLike[str] | None = None,
        api_key: str | None = None,
        tenant: str | None = None,
        timeout_s: float = 30.0,
        retries: int = 3,
    ) -> None:
        check_seconds("timeout_s", timeout_s, _MAX_TIMEOUT_S)
        self._new_attempts = partial(Attempts, float(timeout_s), check_int("retries", retries, 0))
        self._base_url = str(_parse_url(base_url)).rstrip("/")
        path = None if uds is None else os.fsdecode(uds)
        self._shared = SharedItems(is_local=path is not None)
        self._owner = os.getpid()
        self._open_http(path, _headers(api_key, tenant))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base_url!r})"

    @abstractmethod
    def _open_http(self, uds: str | None, headers: dict[bytes, bytes]) -> None: ...

    def _options(self, request: Request, seconds: float) -> dict[str, Any]:
        """Return the arguments for httpx, which would parse base URL and query again."""
        return {
            "method": request.method,
            "url": self._base_url + request.target(),
            "headers": request.headers(),
            "timeout": seconds,
        }


class Client(_Common):
    """A client of the service, for any number of threads in the process that created it.

    Temporary failures (429, 503, a lost connection) are retried after the pause that the service
    asks for.

    Args:
        base_url: The address of the service, `http://` or `https://`.
        uds: The path of a Unix socket to connect to instead.
        api_key: An API key, if the service needs one.
        tenant: The name of the tenant whose keys are wanted.
        timeout_s: The seconds that a call may take with all its retries and pauses.
        retries: The number of retries of each call.

    >>> with mmhash.Client(service_url) as client:
    ...     one, two = client.hash([b"abc", np.zeros(4, np.float16)], engines=["vllm"])
    >>> one.key == mmhash.key(b"abc")
    True
    >>> one.engines["vllm"]["uuid"] == one.key.hex()
    True
    """

    hash = _blocking(calls.hash_items)
    annotate = _blocking(calls.annotate)
    plan = _blocking(calls.plan)
    pad = _blocking(calls.pad)
    blocks = _blocking(calls.blocks)
    info = _blocking(calls.info)

    def _open_http(self, uds: str | None, headers: dict[bytes, bytes]) -> None:
        transport = None if uds is None else httpx.HTTPTransport(uds=uds, limits=_LIMITS)
        self._http = httpx.Client(headers=headers, limits=_LIMITS, transport=transport)

    def close(self) -> None:
        """Close the connections, and free the shared memory."""
        if self._owner == os.getpid():
            self._http.close()
            self._shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, build: Callable[[], Call[T]]) -> T:
        attempts = self._new_attempts()
        call = build()
        return call.read([self._send(request, attempts) for request in call.requests])

    def _send(self, request: Request, attempts: Attempts) -> bytes:
        if request.payload is not None and self._shared.is_used:
            with SharedCopy(self._shared) as shared:
                if local := shared.copy(request):
                    return self._send(local, attempts)
        while True:
            try:
                return self._send_once(request, attempts)
            except ServiceError as error:
                time.sleep(attempts.pause_after(error))

    def _send_once(self, request: Request, attempts: Attempts) -> bytes:
        check_not_forked("Client", self._owner)
        if self._http.is_closed:
            raise ClosedError("this Client is closed")
        options = self._options(request, attempts.seconds_left())
        with (
            attempts.named_errors(),
            self._http.stream(**options, content=attempts.timed(request.pieces())) as response,
        ):
            return body_of(response, b"".join(attempts.timed(response.iter_bytes())))


class AsyncClient(_Common):
    """A `Client` with awaitable methods, for one event loop; threads do long work.

    The arguments are those of `Client`.

    >>> async def main():
    ...     async with mmhash.AsyncClient(service_url) as client:
    ...         return await client.hash(b"abc")
    >>> asyncio.run(main())[0].key == mmhash.key(b"abc")
    True
    """

    hash = _awaitable(calls.hash_items)
    annotate = _awaitable(calls.annotate)
    plan = _awaitable(calls.plan)
    pad = _awaitable(calls.pad)
    blocks = _awaitable(calls.blocks)
    info = _awaitable(calls.info)

    def _open_http(self, uds: str | None, headers: dict[bytes, bytes]) -> None:
        transport = None if uds is None else httpx.AsyncHTTPTransport(uds=uds, limits=_LIMITS)
        self._http = httpx.AsyncClient(headers=headers, limits=_LIMITS, transport=transport)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def aclose(self) -> None:
        """Close the connections, and free the shared memory."""
        if self._owner == os.getpid():
            await self._http.aclose()
            self._shared.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, build: Callable[[], Call[T]]) -> T:
        attempts = self._new_attempts()
        call = await _in_thread(build)
        bodies = [await self._send(request, attempts) for request in call.requests]
        if sum(map(len, bodies)) <= _READ_INLINE_MAX:
            return call.read(bodies)
        return await _in_thread(partial(call.read, bodies))

    async def _send(self, request: Request, attempts: Attempts) -> bytes:
        if request.payload is not None and self._shared.is_used:
            with SharedCopy(self._shared) as shared:
                if local := await _in_thread(partial(shared.copy, request)):
                    return await self._send(local, attempts)
        while True:
            try:
                return await self._send_once(request, attempts)
            except ServiceError as error:
                await asyncio.sleep(attempts.pause_after(error))

    async def _send_once(self, request: Request, attempts: Attempts) -> bytes:
        check_not_forked("AsyncClient", self._owner)
        if self._http.is_closed:
            raise ClosedError("this AsyncClient is closed")
        self._loop = self._loop or asyncio.get_running_loop()
        if self._loop is not asyncio.get_running_loop():
            raise MMHashError("this AsyncClient belongs to another event loop: make one for each")
        seconds = attempts.seconds_left()
        options = self._options(request, seconds)
        with attempts.named_errors():
            async with (
                asyncio.timeout(seconds),
                self._http.stream(**options, content=_awaited(request.pieces())) as response,
            ):
                return body_of(response, await response.aread())


def _headers(api_key: str | None, tenant: str | None) -> dict[bytes, bytes]:
    headers = {
        b"Accept": b"application/json",
        b"User-Agent": b"mmhash/" + mmhash.__version__.encode(),
    }
    if api_key is not None:
        headers[b"Authorization"] = b"Bearer " + header_value("api_key", api_key)
    if tenant is not None:
        headers[b"X-Mmhash-Tenant"] = header_value("tenant", tenant)
    return headers


def _parse_url(text: Any) -> httpx.URL:
    try:
        url = httpx.URL(check_str("base_url", text))
    except (httpx.InvalidURL, ValueError) as error:
        raise InputValueError(f"base_url is not a URL: {error}") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise InputValueError(
            "base_url must begin with http:// or https:// and a host, as in http://127.0.0.1:8780,"
            f" not {text!r}"
        )
    if url.userinfo or url.query or url.fragment:
        raise InputValueError(
            "base_url must have only a scheme, a host and a path, no user, query or fragment:"
            " pass an API key as api_key"
        )
    return url


async def _awaited(pieces: Iterator[Any]) -> AsyncIterator[Any]:
    for piece in pieces:
        yield piece


async def _in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread.

    If cancelled, wait until the function no longer reads its items.
    """
    task = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # marks it as retrieved
        raise
