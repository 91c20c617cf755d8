"""The index reads real sockets, and survives restarts, gaps, silence and garbage."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.kvindex import Index, Worker, WorkerStats
from tests.support.kv_publisher import (
    Publisher,
    PublisherProcess,
    port,
    stored,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

URL = "http://worker"


def tokens(index: Index, *blocks: int | bytes) -> int:
    return index.match(blocks)[URL].tokens


def stats(index: Index) -> WorkerStats:
    return index.stats().workers[URL]


def of(publisher: Any, **options: Any) -> Worker:
    return Worker(URL, publisher.events, publisher.replay, **options)


def started(publisher: Any, **options: Any) -> Index:
    """Return an index of one worker, not yet connected."""
    return Index([of(publisher)], **{"silence_s": 60, "replay_s": 30, **options})


def publish_until(publisher: PublisherProcess, condition: Callable[[], object]) -> None:
    """Publish empty batches until a condition holds.

    A batch between the replay and the subscription is lost until the next one shows the gap.
    """

    def publish_and_look() -> object:
        publisher.publish()
        return condition()

    wait_until(publish_and_look, pause_s=0.1)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as one:
        yield one


def test_a_killed_worker_is_dropped_and_its_successor_starts_empty() -> None:
    with ExitStack() as stack:
        first = stack.enter_context(PublisherProcess())
        index = stack.enter_context(started(first))
        first.publish(*[stored(number) for number in range(10)])
        first.publish(stored(10))
        publish_until(first, lambda: stats(index).blocks == 11)
        first.kill()
        wait_until(lambda: stats(index).blocks == 0)
        assert not stats(index).is_connected
        second = stack.enter_context(PublisherProcess(port(first.events), port(first.replay)))
        for number in range(5):
            second.publish(stored(number))
        publish_until(second, lambda: stats(index).blocks == 5)
        assert tokens(index, *range(10)) == 80
        assert stats(index).disconnects == 1


def test_a_stopped_worker_is_dropped_until_it_goes_on() -> None:
    with ExitStack() as stack:
        process = stack.enter_context(PublisherProcess())
        index = stack.enter_context(started(process, silence_s=2))
        process.publish(stored(1))
        publish_until(process, lambda: tokens(index, 1))
        process.stop()
        wait_until(lambda: not tokens(index, 1))
        process.resume()
        wait_until(lambda: tokens(index, 1))


def test_workers_come_and_go(publisher: Publisher) -> None:
    with Index() as index, Publisher() as other:
        publisher.publish(stored(1))
        other.publish(stored(1))
        index.add(of(publisher))
        index.add(Worker("http://other", other.events, other.replay))
        wait_until(lambda: [one.tokens for one in index.match([1]).values()] == [16, 16])
        with pytest.raises(InputValueError, match="already"):
            index.add(of(publisher))
        index.remove(URL)
        assert set(index.match([1])) == {"http://other"}
        wait_until(lambda: index.stats().blocks == 1)
        with pytest.raises(InputValueError, match="no worker"):
            index.remove(URL)
        index.add(of(publisher))
        wait_until(lambda: tokens(index, 1))
