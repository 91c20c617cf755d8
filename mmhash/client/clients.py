"""The two clients: both do the same steps, and differ in how they wait."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import closing
from functools import wraps
from os import PathLike, fspath
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from mmhash.client import calls
from mmhash.client.hashing import hash_items
from mmhash.client.session import Session
from mmhash.client.steps import Pause, Request, Steps, Work

P = ParamSpec("P")
T = TypeVar("T")

Call = Callable[Concatenate[Session, P], Steps[T]]

DEFAULT_URL = "http://127.0.0.1:8780"


def _waiting(call: Call[P, T]) -> "Callable[Concatenate[Client, P], T]":
    @wraps(call)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._do(call(self._session, *args, **kwargs))

    return method


def _awaiting(call: Call[P, T]) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]":
    @wraps(call)
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._do(call(self._session, *args, **kwargs))

    return method


class Client:
    """Asks the service at `base_url`, or at the Unix socket `uds`; for any number of threads.

    A call that is refused for now (429, 503) or cut off is made again up to `retries` times, after
    as long as the service asks for. No try begins later than `timeout` seconds after the first,
    or waits longer for an answer.
    """

    hash = _waiting(hash_items)
    annotate = _waiting(calls.annotate)
    pad = _waiting(calls.pad)
    blocks = _waiting(calls.blocks)
    info = _waiting(calls.info)
    health = _waiting(calls.health)
    ready = _waiting(calls.ready)

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        uds: str | PathLike[str] | None = None,
        api_key: str | None = None,
        tenant: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
    ) -> None:
        self._session = Session(api_key=api_key, tenant=tenant, timeout=timeout, retries=retries)
        self._http = httpx.Client(
            base_url=base_url,
            headers=self._session.headers,
            timeout=timeout,
            transport=None if uds is None else httpx.HTTPTransport(uds=fspath(uds)),
            trust_env=uds is None,  # a proxy of the environment is not on the way to a socket
        )

    def close(self) -> None:
        """Close the connections, and take back what lies in shared memory."""
        self._http.close()
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, steps: Steps[T]) -> T:
        """Do the steps of a call: send it what each gives, and throw it what each raises."""
        proceed: Callable[[Any], Any] = steps.send
        outcome: Any = None
        with closing(steps):
            while True:
                try:
                    step = proceed(outcome)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                try:
                    proceed, outcome = steps.send, self._take(step)
                except Exception as error:  # noqa: BLE001  (the call's to judge)
                    proceed, outcome = steps.throw, error

    def _take(self, step: Request | Pause | Work) -> Any:
        match step:
            case Request():
                return self._http.request(
                    step.method,
                    step.path,
                    params=step.query,
                    headers=step.headers(),
                    content=step.pieces(),
                )
            case Work():
                return step.function()
            case Pause():
                time.sleep(step.seconds)
        return None


class AsyncClient:
    """A `Client` for one event loop: each call is awaited, and what takes long is a thread's."""

    hash = _awaiting(hash_items)
    annotate = _awaiting(calls.annotate)
    pad = _awaiting(calls.pad)
    blocks = _awaiting(calls.blocks)
    info = _awaiting(calls.info)
    health = _awaiting(calls.health)
    ready = _awaiting(calls.ready)

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        uds: str | PathLike[str] | None = None,
        api_key: str | None = None,
        tenant: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
    ) -> None:
        self._session = Session(api_key=api_key, tenant=tenant, timeout=timeout, retries=retries)
        self._http = httpx.AsyncClient(
            base_url=base_url,
            headers=self._session.headers,
            timeout=timeout,
            transport=None if uds is None else httpx.AsyncHTTPTransport(uds=fspath(uds)),
            trust_env=uds is None,  # as above
        )

    async def close(self) -> None:
        """Close the connections, and take back what lies in shared memory."""
        await self._http.aclose()
        self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _do(self, steps: Steps[T]) -> T:
        """As `Client._do`."""
        proceed: Callable[[Any], Any] = steps.send
        outcome: Any = None
        with closing(steps):
            while True:
                try:
                    step = proceed(outcome)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                try:
                    proceed, outcome = steps.send, await self._take(step)
                except Exception as error:  # noqa: BLE001  (the call's to judge)
                    proceed, outcome = steps.throw, error

    async def _take(self, step: Request | Pause | Work) -> Any:
        match step:
            case Request():
                pieces = step.pieces()
                return await self._http.request(
                    step.method,
                    step.path,
                    params=step.query,
                    headers=step.headers(),
                    content=None if pieces is None else _one_by_one(pieces),
                )
            case Work():
                return await asyncio.to_thread(step.function)
            case Pause():
                await asyncio.sleep(step.seconds)
        return None


async def _one_by_one(pieces: Iterator[Any]) -> AsyncIterator[Any]:
    for piece in pieces:
        yield piece
