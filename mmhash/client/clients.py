"""The two clients: both do the same steps, and differ in how they wait."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from functools import wraps
from os import PathLike
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from mmhash.client import calls
from mmhash.client.address import Address, check_retries, check_timeout, header_value
from mmhash.client.connections import AsyncConnections, Connections, Service
from mmhash.client.effects import Effects, OutOfTimeError, Pause, Request, RunInThread
from mmhash.client.hashing import hash_items
from mmhash.client.session import Session

P = ParamSpec("P")
T = TypeVar("T")

Call = Callable[Concatenate[Session, P], Effects[T]]

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
    as long as the service asks for. All tries and pauses of a call end `timeout` seconds after it
    began. A forked child has connections and shared memory of its own.
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
        service = _service(base_url, uds, api_key, tenant)
        self._session = Session(timeout=check_timeout(timeout), retries=check_retries(retries))
        self._connections = Connections(service)

    def close(self) -> None:
        """Close the connections, and take back what lies in shared memory."""
        self._connections.close()
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, steps: Effects[T]) -> T:
        """Do the steps of a call: send it what each gives, and throw it what each raises."""
        deadline = time.monotonic() + self._session.timeout
        proceed: Callable[[Any], Any] = steps.send
        outcome: Any = None
        with closing(steps):
            while True:
                try:
                    step = proceed(outcome)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                try:
                    proceed, outcome = steps.send, self._take(step, deadline)
                except Exception as error:  # noqa: BLE001  (the call's to judge)
                    proceed, outcome = steps.throw, error

    def _take(self, step: Request | Pause | RunInThread, deadline: float) -> Any:
        match step:
            case Request():
                return self._connections.send(step, deadline)
            case RunInThread():
                return step.function()
            case Pause():
                time.sleep(_in_time(step, deadline))
        return None


class AsyncClient:
    """A `Client` for one event loop at a time: each call is awaited, and threads do long work."""

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
        service = _service(base_url, uds, api_key, tenant)
        self._session = Session(timeout=check_timeout(timeout), retries=check_retries(retries))
        self._connections = AsyncConnections(service)

    async def close(self) -> None:
        """Close the connections, and take back what lies in shared memory."""
        await self._connections.close()
        self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _do(self, steps: Effects[T]) -> T:
        """As `Client._do`."""
        deadline = time.monotonic() + self._session.timeout
        proceed: Callable[[Any], Any] = steps.send
        outcome: Any = None
        with closing(steps):
            while True:
                try:
                    step = proceed(outcome)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                try:
                    proceed, outcome = steps.send, await self._take(step, deadline)
                except Exception as error:  # noqa: BLE001  (the call's to judge)
                    proceed, outcome = steps.throw, error

    async def _take(self, step: Request | Pause | RunInThread, deadline: float) -> Any:
        match step:
            case Request():
                return await self._connections.send(step, deadline)
            case RunInThread():
                return await _in_thread(step.function)
            case Pause():
                await asyncio.sleep(_in_time(step, deadline))
        return None


def _service(
    base_url: str, uds: str | PathLike[str] | None, api_key: str | None, tenant: str | None
) -> Service:
    headers = []
    if api_key is not None:
        headers.append((b"Authorization", b"Bearer " + header_value("api_key", api_key)))
    if tenant is not None:
        headers.append((b"X-Mmhash-Tenant", header_value("tenant", tenant)))
    return Service(Address.parse(base_url, uds), headers)


def _in_time(pause: Pause, deadline: float) -> float:
    if time.monotonic() + pause.seconds > deadline:
        raise OutOfTimeError
    return pause.seconds


async def _in_thread(function: Callable[[], T]) -> T:
    """The function's result; a call that is cancelled waits until nothing reads its items."""
    work = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # nobody else asks for it
        raise
