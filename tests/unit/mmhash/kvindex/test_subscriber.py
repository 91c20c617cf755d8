"""Messages of the subscription and of replays."""

import socket
import time

import pytest
import zmq

from mmhash.errors import InputValueError
from mmhash.kvindex.subscriber import is_end, read_message, subscribe
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
def test_other_messages_are_none(frames: list[bytes]) -> None:
    assert read_message(frames) is None


@pytest.mark.parametrize("frames", [[b"", b"", END, b""], [b"", END, b""]])
def test_a_replay_ends_with_a_number_of_its_own(frames: list[bytes]) -> None:
    assert is_end(frames)


def test_an_endpoint_that_is_none_is_a_named_error() -> None:
    with zmq.Context() as context, pytest.raises(InputValueError, match="events is an endpoint"):
        subscribe(context, "nowhere")


def test_only_what_was_asked_is_unanswered() -> None:
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


def test_a_handshake_without_an_answer_is_one_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, zmq.Context() as context:
        connection = subscribe(context, f"tcp://127.0.0.1:{server.getsockname()[1]}")
        time.sleep(0.02)
        assert connection.unanswered_s() >= 0.02
        connection.close()
