"""The two clients: both carry out the same effects, one waiting and one awaiting.

Both classes list their methods, because Python has no type for a list whose results are `T` in one
class and an awaitable of `T` in the other: only a descriptor could give each its own signature.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from functools import update_wrapper
from inspect import Parameter, signature
from os import PathLike
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, get_args

from mmhash.arguments import header_value
from mmhash.client import media, probes, requests, token_ids
from mmhash.client.address import Address
from mmhash.client.connections import AsyncConnections, Connections, Service
from mmhash.client.effects import Effects, OutOfTimeError, Pause, Request, RunInThread
from mmhash.client.hashing import hash_items
from mmhash.client.session import Session

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])

Call = Callable[Concatenate[Session, P], Effects[T]]

DEFAULT_URL = "http://127.0.0.1:8780"


def _blocking(call: Call[P, T]) -> "Callable[Concatenate[Client, P], T]":
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(call(self._session, *args, **kwargs))

    return _described(method, call)


def _awaitable(call: Call[P, T]) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]":
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(call(self._session, *args, **kwargs))

    return _described(method, call)


def _described(method: M, call: Call[P, T]) -> M:
    """Give a method the name, the text and the signature of its call, as `help()` shows them."""
    described = signature(call)
    _, *parameters = described.parameters.values()
    parameters.insert(0, Parameter("self", Parameter.POSITIONAL_OR_KEYWORD))
    result = get_args(described.return_annotation)[-1]  # of the generator
    update_wrapper(method, call)
    vars(method).pop("__wrapped__")  # help() would show its session and its effects
    method.__signature__ = described.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=result
    )
    method.__annotations__ = {
        name: annotation
        for name, annotation in (*call.__annotations__.items(), ("return", result))
        if name != "session"
    }
    return method


class Client:
    """A client of the service, for any number of threads.

    A request that fails temporarily (429, 503, a lost connection) is retried after the pause that
    the service requests. A process that was forked makes its own client: this one raises an error.

    Args:
        base_url: The address of the service, `http://` or `https://`.
        uds: The path of a Unix socket to connect to instead.
        api_key: A key of the service, if it needs one.
        tenant: The name of the tenant whose keys are wanted.
        timeout: The seconds that a call may take with all its retries and pauses.
        retries: The number of retries of each request.

    >>> with mmhash.Client(service_url) as client:
    ...     one, two = client.hash([b"abc", np.zeros(4, np.float16)], engines=["vllm"])
    >>> one.key == mmhash.key(b"abc")
    True
    >>> one.engines["vllm"]["uuid"] == one.key.hex()
    True
    """

    hash = _blocking(hash_items)
    video = _blocking(media.video)
    audio = _blocking(media.audio)
    annotate = _blocking(requests.annotate)
    plan = _blocking(requests.plan)
    pad = _blocking(token_ids.pad)
    blocks = _blocking(token_ids.blocks)
    info = _blocking(probes.info)
    health = _blocking(probes.health)
    ready = _blocking(probes.ready)

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
        self._session = Session(timeout, retries)
        self._connections = Connections(service)

    def close(self) -> None:
        """Close the connections, and free the shared memory."""
        self._connections.close()
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, effects: Effects[T]) -> T:
        """Carry out the effects of a call: send it their outcomes, and throw it their errors."""
        deadline = time.monotonic() + self._session.timeout
        proceed: Callable[[Any], Any] = effects.send
        outcome: Any = None
        with closing(effects):
            while True:
                try:
                    effect = proceed(outcome)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                try:
                    proceed, outcome = effects.send, self._carry_out(effect, deadline)
                except Exception as error:  # noqa: BLE001  (the call handles it)
                    proceed, outcome = effects.throw, error

    def _carry_out(self, effect: Request | Pause | RunInThread, deadline: float) -> Any:
        match effect:
            case Request():
                return self._connections.send(effect, deadline)
            case RunInThread():
                return effect.function()
            case Pause():
                time.sleep(_check_pause(effect, deadline))
        return None


class AsyncClient:
    """A `Client` with awaitable methods, for one event loop at a time; threads do long work.

    Args:
        base_url: The address of the service, `http://` or `https://`.
        uds: The path of a Unix socket to connect to instead.
        api_key: A key of the service, if it needs one.
        tenant: The name of the tenant whose keys are wanted.
        timeout: The seconds that a call may take with all its retries and pauses.
        retries: The number of retries of each request.

    >>> async def main():
    ...     async with mmhash.AsyncClient(service_url) as client:
    ...         return await client.hash(b"abc")
    >>> asyncio.run(main())[0].key == mmhash.key(b"abc")
    True
    """

    hash = _awaitable(hash_items)
    video = _awaitable(media.video)
    audio = _awaitable(media.audio)
    annotate = _awaitable(requests.annotate)
    plan = _awaitable(requests.plan)
    pad = _awaitable(token_ids.pad)
    blocks = _awaitable(token_ids.blocks)
    info = _awaitable(probes.info)
    health = _awaitable(probes.health)
    ready = _awaitable(probes.ready)

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
        self._session = Session(timeout, retries)
        self._connections = AsyncConnections(service)

    async def close(self) -> None:
        """Close the connections, and free the shared memory."""
        await self._connections.close()
        self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, effects: Effects[T]) -> T:
        """Carry out the effects of a call, as `Client._run` does."""
        deadline = time.monotonic() + self._session.timeout
        proceed: Callable[[Any], Any] = effects.send
        outcome: Any = None
        with closing(effects):
            while True:
                try:
                    effect = proceed(outcome)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                try:
                    proceed, outcome = effects.send, await self._carry_out(effect, deadline)
                except Exception as error:  # noqa: BLE001  (the call handles it)
                    proceed, outcome = effects.throw, error

    async def _carry_out(self, effect: Request | Pause | RunInThread, deadline: float) -> Any:
        match effect:
            case Request():
                return await self._connections.send(effect, deadline)
            case RunInThread():
                return await _in_thread(effect.function)
            case Pause():
                await asyncio.sleep(_check_pause(effect, deadline))
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


def _check_pause(pause: Pause, deadline: float) -> float:
    if time.monotonic() + pause.seconds > deadline:
        raise OutOfTimeError
    return pause.seconds


async def _in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread; if cancelled, wait until the thread reads its items no more."""
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
