"""A replay as it arrives: its batches, its end, what cannot be read, and its limit."""

from collections.abc import Iterator

import pytest
import zmq

from mmhash.kvindex import replay
from mmhash.kvindex.replay import Replay

END = [b"", b"", (-1).to_bytes(8, "big", signed=True), b""]


@pytest.fixture
def pair() -> Iterator[tuple[zmq.Socket[bytes], Replay]]:
    """A socket, and the replay that receives what it sends."""
    with (
        zmq.Context() as context,
        context.socket(zmq.PAIR) as sender,
        context.socket(zmq.PAIR) as receiver,
    ):
        sender.bind("inproc://replay")
        receiver.connect("inproc://replay")
        yield sender, Replay(receiver)


def batch(number: int, payload: bytes = b"x") -> list[bytes]:
    return [b"", b"", number.to_bytes(8, "big"), payload]


def test_batches_come_in_order_until_the_end(pair: tuple[zmq.Socket[bytes], Replay]) -> None:
    sender, received = pair
    for message in (batch(1), batch(2), END, batch(3)):
        sender.send_multipart(message)
    assert received.receive() == 0
    assert received.has_end
    assert [received.take() for _ in range(2)] == [(1, b"x"), (2, b"x")]
    assert not received.batches


def test_unreadable_messages_are_counted(pair: tuple[zmq.Socket[bytes], Replay]) -> None:
    sender, received = pair
    for message in ([b"one"], batch(1), [b"", b"", b"short", b"x"]):
        sender.send_multipart(message)
    assert received.receive() == 2
    assert [number for number, _ in received.batches] == [1]


def test_a_long_one_is_cut(
    pair: tuple[zmq.Socket[bytes], Replay], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MAX_BYTES", 2000)
    sender, received = pair
    for number in range(5):
        sender.send_multipart(batch(number, bytes(900)))
    received.receive()
    assert received.is_cut
    assert len(received.batches) == 3
