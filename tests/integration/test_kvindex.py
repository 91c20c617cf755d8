"""The index with publishers on real sockets, some in processes: restarts, gaps, silence, garbage."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import zmq

from mmhash.errors import InputValueError
from mmhash.kvindex import Index, Worker, WorkerStats, subscriber
from tests.support.kv_publisher import (
    CLEARED,
    Publisher,
    PublisherProcess,
    port,
    removed,
    stored,
)

pytestmark = pytest.mark.slow

URL = "http://worker"


def until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    """Wait for a condition; busy machines may take long."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def tokens(index: Index, *blocks: int | bytes) -> int:
    return index.match(blocks)[URL].tokens


def stats(index: Index) -> WorkerStats:
    return index.stats().workers[URL]


def of(publisher: Any, **options: Any) -> Worker:
    return Worker(URL, publisher.events, publisher.replay, **options)


def started(publisher: Any, **options: Any) -> Index:
    """Return an index of one worker, not yet connected."""
    return Index([of(publisher)], **{"silence_s": 60, "replay_s": 30, **options})


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as one:
        yield one


def test_a_late_index_learns_earlier_blocks_by_a_replay(publisher: Publisher) -> None:
    publisher.publish(stored(1, 2, 3))
    publisher.publish(removed(3), stored(3, medium="CPU"))
    with started(publisher) as index:
        until(lambda: tokens(index, 1, 2, 3) == 48)
        match = index.match([1, 2, 3, 4])[URL]
        assert match.tiers == {"GPU": 32}
        assert match.ranks == {0: 48}
        assert index.match([1, 2, 3], block_size=4)[URL].tokens == 12
        publisher.publish(CLEARED)
        until(lambda: stats(index).blocks == 0)


def test_lost_batches_are_replayed(publisher: Publisher) -> None:
    with started(publisher) as index:
        publisher.publish(stored(1, 2))
        until(lambda: tokens(index, 1, 2) == 32)  # so the first replay is over
        publisher.publish(removed(2), is_lost=True)
        publisher.publish(stored(3))
        until(lambda: tokens(index, 3))
        assert tokens(index, 1, 2, 3) == 16
        assert stats(index).gaps == 1
        assert stats(index).drops == 0


def test_a_lost_last_batch_is_found_by_a_probe(publisher: Publisher) -> None:
    with started(publisher, silence_s=0.5) as index:
        until(lambda: stats(index).is_connected)
        publisher.publish(stored(1))
        until(lambda: tokens(index, 1))
        publisher.publish(removed(1), is_lost=True)
        until(lambda: not tokens(index, 1))


@pytest.mark.parametrize("is_refused", [True, False])
def test_blocks_are_dropped_if_a_replay_is_refused_or_impossible(
    publisher: Publisher, is_refused: bool
) -> None:
    worker = of(publisher) if is_refused else Worker(URL, publisher.events)
    with Index([worker], silence_s=60, replay_s=5) as index:
        until(lambda: stats(index).is_connected)
        until(lambda: not is_refused or publisher.requests)
        while not tokens(index, 9):  # without replays, the first batches may be lost
            publisher.publish(stored(9))
            time.sleep(0.02)
        publisher.publish(stored(1, 2))
        until(lambda: tokens(index, 1, 2) == 32)
        publisher.answers = False
        publisher.publish(removed(2), is_lost=True)
        publisher.publish(stored(3))
        until(lambda: stats(index).drops == 1)
        until(lambda: stats(index).blocks == 1)
        assert stats(index).failed_replays == is_refused
        assert tokens(index, 1) == 0
        assert tokens(index, 3) == 16


def test_a_killed_worker_is_dropped_and_its_successor_starts_empty() -> None:
    with ExitStack() as stack:
        first = stack.enter_context(PublisherProcess())
        index = stack.enter_context(started(first))
        first.publish(*[stored(number) for number in range(10)])
        first.publish(stored(10))
        until(lambda: stats(index).blocks == 11)
        first.kill()
        until(lambda: stats(index).blocks == 0)
        assert not stats(index).is_connected
        second = stack.enter_context(PublisherProcess(port(first.events), port(first.replay)))
        for number in range(5):  # more batches than the first had
            second.publish(stored(number))
        until(lambda: stats(index).blocks == 5)
        assert tokens(index, *range(10)) == 80
        assert stats(index).disconnects == 1


def test_a_stopped_worker_is_dropped_until_it_goes_on() -> None:
    with ExitStack() as stack:
        process = stack.enter_context(PublisherProcess())
        index = stack.enter_context(started(process, silence_s=2))
        process.publish(stored(1))
        until(lambda: tokens(index, 1))
        process.stop()
        until(lambda: not tokens(index, 1))
        process.resume()
        until(lambda: tokens(index, 1))


def test_ranks_publish_at_consecutive_ports() -> None:
    with ExitStack() as stack:
        first, second = stack.enter_context(consecutive())
        worker = Worker(URL, first.events, first.replay, ranks=2)
        index = stack.enter_context(Index([worker]))
        first.publish(stored(1))
        second.publish(stored(1, 2))
        until(lambda: index.match([1, 2])[URL].ranks == {0: 16, 1: 32})
        match = index.match([1, 2])[URL]
        assert (match.tokens, match.rank) == (32, 1)
        second.close()
        until(lambda: index.match([1, 2])[URL].ranks == {0: 16})


@contextmanager
def consecutive() -> Iterator[tuple[Publisher, Publisher]]:
    """Run two publishers; the second has the ports behind those of the first."""
    while True:
        with ExitStack() as stack:
            first = stack.enter_context(Publisher(rank=0))
            ports = port(first.events) + 1, port(first.replay or "") + 1
            try:
                second = stack.enter_context(Publisher(*ports, rank=1))
            except zmq.ZMQError:
                continue
            yield first, second
            return


def test_workers_come_and_go(publisher: Publisher) -> None:
    with Index() as index, Publisher() as other:
        publisher.publish(stored(1))
        other.publish(stored(1))
        index.add(of(publisher))
        index.add(Worker("http://other", other.events, other.replay))
        until(lambda: [one.tokens for one in index.match([1]).values()] == [16, 16])
        with pytest.raises(InputValueError, match="already"):
            index.add(of(publisher))
        index.remove(URL)
        assert set(index.match([1])) == {"http://other"}
        until(lambda: index.stats().blocks == 1)
        with pytest.raises(InputValueError, match="no worker"):
            index.remove(URL)
        index.add(of(publisher))
        until(lambda: tokens(index, 1))


def test_a_replay_longer_than_the_limit_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "MAX_RECEIVED_BYTES", 50_000)
    monkeypatch.setattr(subscriber, "MAX_MESSAGES", 700)
    with Publisher() as publisher:
        for number in range(2000):
            publisher.publish(stored(number))
        with started(publisher) as index:
            until(lambda: stats(index).blocks == 2000)
            assert len(publisher.requests) > 2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_replicas_agree(seed: int) -> None:
    draw = random.Random(seed)
    with ExitStack() as stack:
        engines = [_Engine(stack, number) for number in range(4)]
        workers = [engine.worker for engine in engines]
        first = stack.enter_context(Index(workers, silence_s=1))
        replicas = [first]
        for engine in engines:
            engine.publisher.publish(stored(engine.name(99)))
        # So the first replays are over.
        until(lambda: all(worker.blocks for worker in first.stats().workers.values()))
        for step in range(300):
            engine = draw.choice(engines)
            engine.act(draw)
            if step == 150:
                replicas.append(stack.enter_context(Index(workers, silence_s=1)))
            if step % 10 == 0:
                time.sleep(0.01)
        prompts = [[draw.randrange(40) for _ in range(3)] for _ in range(200)]
        prompts += [list(range(40)), list(range(20, 40))]

        def answers(engine: "_Engine") -> list[int]:
            return [engine.match(prompt) for prompt in prompts]

        for engine in engines:
            engine.publisher.publish(stored(engine.name(99)))
            for index in replicas:
                until(
                    lambda index=index, engine=engine: (
                        [
                            index.match(map(engine.name, prompt))[engine.worker.url].tokens
                            for prompt in prompts
                        ]
                        == answers(engine)
                    )
                )

        def tiers(index: Index) -> dict[str, Any]:
            return {url: worker.tiers for url, worker in index.stats().workers.items()}

        # A replay that a busy machine delays drops the blocks of its worker until the next one.
        until(lambda: tiers(replicas[0]) == tiers(replicas[1]))
        until(lambda: replicas[0].stats().blocks == replicas[1].stats().blocks)
        assert sum(worker.gaps for worker in first.stats().workers.values())


class _Engine:
    """A cache with its publisher; engines name blocks by numbers, signed numbers or bytes."""

    def __init__(self, stack: ExitStack, number: int) -> None:
        self.number = number
        self.stack = stack
        self.cached: dict[str, set[int]] = {"GPU": set(), "CPU_PINNED": set()}
        self.publisher = stack.enter_context(Publisher())
        self.worker = Worker(f"http://{number}", self.publisher.events, self.publisher.replay)

    def name(self, block: int) -> int | bytes:
        value = (self.number << 56 | block * 0x9E3779B97F4A7C15) % (1 << 64)
        if self.number == 1:
            return bytes(24) + value.to_bytes(8, "big")
        return value - (1 << 64) if self.number == 2 and value >> 63 else value

    def act(self, draw: random.Random) -> None:
        blocks = draw.sample(range(40), draw.randint(1, 20))
        medium = draw.choice(list(self.cached))
        names = [self.name(block) for block in blocks]
        is_lost = draw.random() < 0.1
        match draw.choices(["store", "remove", "clear", "restart"], [60, 30, 2, 1])[0]:
            case "store":
                self.cached[medium].update(blocks)
                self.publisher.publish(stored(*names, medium=medium), is_lost=is_lost)
            case "remove":
                self.cached[medium].difference_update(blocks)
                self.publisher.publish(removed(*names, medium=medium), is_lost=is_lost)
            case "clear":
                self.cached = {"GPU": set(), "CPU_PINNED": set()}
                self.publisher.publish(CLEARED, is_lost=is_lost)
            case "restart":
                ports = port(self.publisher.events), port(self.publisher.replay or "")
                self.publisher.close()
                self.cached = {"GPU": set(), "CPU_PINNED": set()}
                self.publisher = self.stack.enter_context(Publisher(*ports))

    def match(self, prompt: list[int]) -> int:
        cached = set().union(*self.cached.values())
        return 16 * next((n for n, one in enumerate(prompt) if one not in cached), len(prompt))
