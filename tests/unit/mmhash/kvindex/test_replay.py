"""A replay as it arrives: its batches, its end, what cannot be read, and its limit."""

from collections.abc import Iterator

import pytest
import zmq

from mmhash.kvindex import subscriber
from mmhash.kvindex.subscriber import Replay, request_replay

END = [b"", b"", (-1).to_bytes(8, "big", signed=True), b""]


class Router:
    """An engine's socket for replays, and the replay that receives what it sends."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._socket = context.socket(zmq.ROUTER)
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.connection = request_replay(context, f"tcp://127.0.0.1:{port}", 7)
        self.received = Replay(self.connection)
        while not self._socket.poll(10):
            assert self.received.receive() == 0  # does the handshake
        self._peer, *self.request = self._socket.recv_multipart()

    def send(self, message: list[bytes]) -> None:
        self._socket.send_multipart([self._peer, *message])

    def close(self) -> None:
        self._socket.close(linger=30_000)


@pytest.fixture
def router() -> Iterator[Router]:
    context = zmq.Context()
    yield Router(context)
    context.destroy()


def batch(number: int, payload: bytes = b"x") -> list[bytes]:
    return [b"", b"", number.to_bytes(8, "big"), payload]


def test_it_is_asked_for_by_its_first_number(router: Router) -> None:
    assert router.request == [b"", (7).to_bytes(8, "big")]


def test_batches_come_in_order_until_the_end(router: Router) -> None:
    for message in (batch(1), batch(2), END, batch(3)):
        router.send(message)
    while not router.received.has_end:
        router.received.receive()
    assert [router.received.take() for _ in range(2)] == [(1, b"x"), (2, b"x")]
    assert not router.received.batches


def test_unreadable_messages_are_counted(router: Router) -> None:
    for message in ([b"", b"", b"short", b"x"], batch(1), [b"one"], END):
        router.send(message)
    garbage = 0
    while not router.received.has_end:
        garbage += router.received.receive()
    assert garbage == 2
    assert [number for number, _ in router.received.batches] == [1]


def test_a_long_one_is_cut(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "MAX_RECEIVED_BYTES", 2000)
    for number in range(5):
        router.send(batch(number, bytes(900)))
    while not router.received.is_cut:
        router.received.receive()
    assert [number for number, _ in router.received.batches][:3] == [0, 1, 2]


def test_one_whose_connection_ends_is_cut(router: Router) -> None:
    router.send(batch(1))
    router.close()
    while not router.received.is_cut:
        router.received.receive()
    assert not router.received.has_end
    assert len(router.received.batches) == 1
