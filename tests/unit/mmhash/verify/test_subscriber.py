"""The subscription to a publisher of KV events, on a real socket."""

import socket
import threading

import pytest

from mmhash.errors import TransportError
from mmhash.verify import subscriber
from mmhash.verify.subscriber import Subscriber
from tests.support.kv_publisher import Publisher, removed, stored


def test_a_message_published_after_the_handshake_arrives() -> None:
    with Publisher() as publisher, Subscriber(publisher.events) as subscription:
        blocks: list[int | bytes] = []
        while not blocks:  # the publisher reads a subscription in the background
            publisher.publish(removed(7), stored(1, 2))
            found = subscription.stored(first_s=0.1, quiet_s=0.01)
            blocks = [one for event in found for one in event.ids]
        assert blocks[:2] == [1, 2]


def test_a_malformed_batch_is_a_named_error() -> None:
    with (
        Publisher() as publisher,
        Subscriber(publisher.events) as subscription,
        pytest.raises(TransportError, match="no KV events of an engine"),
    ):
        publish_garbage(publisher, subscription)


def publish_garbage(publisher: Publisher, subscription: Subscriber) -> None:
    while True:
        publisher.send(b"\xc1")
        subscription.stored(first_s=0.1)


def test_a_port_without_a_publisher_is_a_named_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "_READY_S", 0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(TransportError, match="no publisher"):
            Subscriber(f"tcp://127.0.0.1:{free.getsockname()[1]}")


def test_events_without_an_end_are_a_named_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "_STORED_S", 0.2)
    is_done = threading.Event()

    def publish(publisher: Publisher) -> None:
        while not is_done.wait(0.001):
            publisher.publish(stored(1, 2))

    with Publisher() as publisher, Subscriber(publisher.events) as subscription:
        thread = threading.Thread(target=publish, args=(publisher,))
        thread.start()
        try:
            with pytest.raises(TransportError, match="without a pause"):
                subscription.stored(first_s=60, quiet_s=60)
        finally:
            is_done.set()
            thread.join()
