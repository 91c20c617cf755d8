"""Messages of subscriptions and of replays."""

import socket
import time
from collections.abc import Iterator

import pytest
import zmq

from mmhash.errors import InputValueError
from mmhash.kvindex import subscriber
from mmhash.kvindex.subscriber import Replay, is_end, read_message, request_replay, subscribe
from tests.support.kv_publisher import Publisher

NUMBER = (7).to_bytes(8, "big")
END = b"\xff" * 8


@pytest.mark.parametrize(
    "frames",
    [
        [b"topic", NUMBER, b"batch"],
        [b"", b"topic", NUMBER, b"batch"],
        [b"", NUMBER, b"batch"],  # SGLang's replays before 0.5.23
    ],
)
def test_a_message_has_a_number_and_a_batch(frames: list[bytes]) -> None:
    assert read_message(frames) == (7, b"batch")
    assert not is_end(frames)


@pytest.mark.parametrize("frames", [[], [b""], [b"", b"12", b"batch"], [NUMBER] * 5])
def test_other_messages_are_refused(frames: list[bytes]) -> None:
    assert read_message(frames) is None


@pytest.mark.parametrize("frames", [[b"", b"", END, b""], [b"", END, b""]])
def test_a_replay_ends_with_a_number_of_its_own(frames: list[bytes]) -> None:
    assert is_end(frames)


def test_a_malformed_endpoint_is_a_named_error() -> None:
    with (
        zmq.Context() as context,
        pytest.raises(InputValueError, match="events must be an endpoint"),
    ):
        subscribe(context, "nowhere")


def test_only_a_request_that_was_sent_can_be_unanswered() -> None:
    """A process that was suspended takes no quiet peer for one that is gone."""
    with Publisher() as publisher, zmq.Context() as context:
        connection = subscribe(context, publisher.events)
        while not connection.is_ready:
            connection.socket.poll(10)
            connection.receive()
        time.sleep(0.02)
        assert connection.unanswered_s() == 0
        connection.ping()
        time.sleep(0.02)
        connection.ping()
        assert connection.unanswered_s() >= 0.02
        assert connection.socket.poll(30_000)
        while connection.unanswered_s():
            connection.receive()
        connection.close()


def test_an_unanswered_handshake_counts_as_unanswered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, zmq.Context() as context:
        connection = subscribe(context, f"tcp://127.0.0.1:{server.getsockname()[1]}")
        time.sleep(0.02)
        assert connection.unanswered_s() >= 0.02
        connection.close()


REPLAY_END = [b"", b"", (-1).to_bytes(8, "big", signed=True), b""]


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


def replayed(number: int, payload: bytes = b"x") -> list[bytes]:
    return [b"", b"", number.to_bytes(8, "big"), payload]


def test_a_replay_is_requested_from_its_first_number(router: Router) -> None:
    assert router.request == [b"", (7).to_bytes(8, "big")]


def test_batches_come_in_order_until_the_end(router: Router) -> None:
    for message in (replayed(1), replayed(2), REPLAY_END, replayed(3)):
        router.send(message)
    while not router.received.has_end:
        router.received.receive()
    assert [router.received.take() for _ in range(2)] == [(1, b"x"), (2, b"x")]
    assert not router.received.batches


def test_unreadable_messages_are_counted(router: Router) -> None:
    for message in ([b"", b"", b"short", b"x"], replayed(1), [b"one"], REPLAY_END):
        router.send(message)
    garbage = 0
    while not router.received.has_end:
        garbage += router.received.receive()
    assert garbage == 2
    assert [number for number, _ in router.received.batches] == [1]


def test_a_long_replay_is_cut_off(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "MAX_RECEIVED_BYTES", 2000)
    for number in range(5):
        router.send(replayed(number, bytes(900)))
    while not router.received.is_cut:
        router.received.receive()
    assert [number for number, _ in router.received.batches][:3] == [0, 1, 2]


def test_a_replay_whose_connection_ends_is_cut_off(router: Router) -> None:
    router.send(replayed(1))
    router.close()
    while not router.received.is_cut:
        router.received.receive()
    assert not router.received.has_end
    assert len(router.received.batches) == 1
