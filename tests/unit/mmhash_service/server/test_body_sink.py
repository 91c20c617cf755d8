"""Long bodies take turns on the event loop."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest
import uvloop
from uvicorn.protocols.http.flow_control import FlowControl

from mmhash_service.server.body_sink import BodyReceiver

MIB = 1 << 20
BODIES = 48


@pytest.fixture
def sent() -> Iterator[list[tuple[socket.socket, int]]]:
    """Connections whose clients have sent all that the sockets hold, and the number of bytes."""
    with socket.create_server(("127.0.0.1", 0), backlog=BODIES) as listener, ExitStack() as stack:
        pairs = []
        for _ in range(BODIES):
            client = stack.enter_context(socket.create_connection(listener.getsockname()))
            client.setblocking(False)
            nbytes = 0
            with suppress(BlockingIOError):
                while True:
                    nbytes += client.send(bytes(MIB))
            pairs.append((stack.enter_context(listener.accept()[0]), nbytes))
        yield pairs


class Body(asyncio.Protocol):
    """A connection whose body is received, and counted by the turn of the event loop."""

    def __init__(self, nbytes: int, by_turn: list[int], done: asyncio.Semaphore) -> None:
        self._left = nbytes
        self._by_turn = by_turn
        self._done = done

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        flow, loop = FlowControl(transport), asyncio.get_running_loop()
        self._receiver = BodyReceiver(
            self, self.body_bytes_received, lambda: self._left, flow, loop
        )
        transport.set_protocol(self._receiver)

    def body_bytes_received(self, piece: memoryview) -> None:
        self._by_turn[-1] += len(piece)
        self._left -= len(piece)
        if not self._left:
            self._receiver.end()
            self._transport.set_protocol(self)
            self._done.release()


async def receive(sent: list[tuple[socket.socket, int]]) -> list[int]:
    """Receive the bodies at once; return how many bytes came in each turn."""
    loop = asyncio.get_running_loop()
    by_turn, done = [0], asyncio.Semaphore(0)

    async def count_turns() -> None:
        while True:
            by_turn.append(0)
            await asyncio.sleep(0)

    turn = asyncio.create_task(count_turns())
    connecting = [
        loop.connect_accepted_socket(partial(Body, nbytes, by_turn, done), connection.dup())
        for connection, nbytes in sent
    ]
    connected = await asyncio.gather(*connecting)
    for _ in sent:
        await done.acquire()
    turn.cancel()
    for transport, _ in connected:
        transport.abort()
    await asyncio.sleep(0)
    return by_turn


def test_many_bodies_leave_turns_for_other_requests(sent: list[tuple[socket.socket, int]]) -> None:
    """If they did not wait, one turn would have all that the sockets hold."""
    total = sum(nbytes for _, nbytes in sent)
    by_turn = uvloop.run(receive(sent))
    assert sum(by_turn) == total
    assert total > 64 * MIB
    assert max(by_turn) <= BODIES * MIB  # in the first turn nobody waits
    assert sorted(by_turn)[-3] <= 10 * MIB
