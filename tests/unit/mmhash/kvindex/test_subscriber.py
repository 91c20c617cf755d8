"""Messages of subscriptions and of replays."""

import socket
import time
from collections.abc import Iterator

import pytest
import zmq

from mmhash.errors import InputValueError, TransportError
from mmhash.kvindex.subscriber import (
    EngineSocket,
    is_end,
    read_message,
    request_replay,
    subscribe,
)
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


@pytest.fixture
def router() -> Iterator[zmq.Socket[bytes]]:
    """An engine's socket for replays."""
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind("tcp://127.0.0.1:*")
    yield socket
    context.destroy(linger=0)


def requested(router: zmq.Socket[bytes]) -> tuple[EngineSocket, list[bytes]]:
    """Request a replay from 7 on; return its connection and what the engine receives."""
    endpoint = router.getsockopt_string(zmq.LAST_ENDPOINT)
    connection = request_replay(router.context, endpoint, 7)
    while not router.poll(10):
        assert list(connection.messages()) == []  # does the handshake
    return connection, router.recv_multipart()


def test_a_replay_is_requested_from_its_first_number(router: zmq.Socket[bytes]) -> None:
    connection, (peer, *request) = requested(router)
    assert request == [b"", NUMBER]
    messages = [[b"", b"", NUMBER, b"x"], [b"", b"", END, b""]]
    for message in messages:
        router.send_multipart([peer, *message])
    received: list[list[bytes]] = []
    while received != messages:
        received += connection.messages()
    connection.close()


def test_a_connection_that_ends_is_an_error_after_its_messages(router: zmq.Socket[bytes]) -> None:
    connection, (peer, *_) = requested(router)
    router.send_multipart([peer, b"", b"", NUMBER, b"x"])
    router.close(linger=30_000)
    received: list[list[bytes]] = []
    with pytest.raises(TransportError, match="closed"):  # noqa: PT012  (the loop ends by the error)
        while True:
            received += connection.messages()
    connection.close()
    assert received == [[b"", b"", NUMBER, b"x"]]
