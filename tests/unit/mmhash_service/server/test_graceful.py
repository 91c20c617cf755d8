"""The server of one process: which connections it accepts while requests run."""

import asyncio
import socket
from collections import Counter
from functools import partial
from typing import cast

import uvicorn
import uvloop
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mmhash_service.limits.capacity import Limits
from mmhash_service.server.graceful import Server
from mmhash_service.server.protocol import BoundedProtocol
from mmhash_service.settings import Settings

CLIENTS = 64
REQUEST = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


class Client(asyncio.Protocol):
    """A client that sends the next request as soon as it has a response."""

    def __init__(self, number: int, responses: Counter[int], done: asyncio.Event) -> None:
        self._number, self._responses, self._done = number, responses, done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.write(REQUEST)

    def data_received(self, _data: bytes) -> None:
        self._responses[self._number] += 1
        if len(self._responses) == CLIENTS:
            self._done.set()
        self._transport.write(REQUEST)


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.sleep(0)  # the request runs for more than one turn of the event loop
    await Response()(scope, receive, send)


async def responses_to_waiting_clients(listener: socket.socket) -> Counter[int]:
    """Start a server for which clients wait. Return their responses once each has one."""
    responses, done = Counter[int](), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in range(CLIENTS):
        await loop.create_connection(
            partial(Client, number, responses, done), *listener.getsockname()
        )
    protocol = partial(BoundedProtocol, stall_timeout_s=60.0)
    config = uvicorn.Config(answer, http=protocol, lifespan="off", log_config=None)  # type: ignore[arg-type]
    config.load()
    server = Server(config, Limits(Settings()), lambda: None, grace_s=1.0)
    server.lifespan = config.lifespan_class(config)
    await server.startup([listener])
    await asyncio.wait_for(done.wait(), 60)
    counted = responses.copy()
    server.force_exit = True
    await server.shutdown([listener])
    return counted


def test_running_requests_do_not_delay_new_connections() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=CLIENTS) as listener:
        responses = uvloop.run(responses_to_waiting_clients(listener))
    # One connection in each turn would be half as many responses as clients for the first.
    assert max(responses.values()) < CLIENTS / 4
