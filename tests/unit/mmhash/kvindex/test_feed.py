"""The order of batches: gaps, replays, restarts and garbage from a simulated publisher."""

from collections import deque
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmhash.kvindex import feed
from mmhash.kvindex.events import Batch, BlocksRemoved, BlocksStored
from mmhash.kvindex.feed import Feed


class Blocks:
    """The blocks that a feed has built up."""

    def __init__(self) -> None:
        self.ids: set[Any] = set()
        self.drops = 0

    def apply(self, batch: Batch, *, is_live: bool) -> None:  # noqa: ARG002
        for event in batch.events:
            if isinstance(event, BlocksStored):
                self.ids.update(event.ids)
            elif isinstance(event, BlocksRemoved):
                self.ids.difference_update(event.ids)

    def drop(self) -> None:
        self.ids = set()
        self.drops += 1


class Engine:
    """A publisher with its cache, and the feed that reads it."""

    def __init__(self, *, buffered: int = 1000, has_replay: bool = True) -> None:
        self.blocks = Blocks()
        self.feed = Feed(self.blocks, self.requests_append if has_replay else None)
        self.buffered = buffered
        self.requests: list[int] = []
        self.start()
        self.feed.connected()

    def requests_append(self, start: int) -> None:
        self.requests = [start]  # a new request replaces the one before it

    def start(self) -> None:
        self.number = 0
        self.ids: set[int] = set()
        self.buffer: deque[tuple[int, bytes]] = deque(maxlen=self.buffered)

    def publish(self, *, stored: Any = (), removed: Any = (), how: str = "sent") -> None:
        self.ids.update(stored)
        self.ids.difference_update(removed)
        events: list[Any] = [{"type": "BlockStored", "block_hashes": list(stored), "block_size": 1}]
        events.append({"type": "BlockRemoved", "block_hashes": list(removed)})
        payload = msgspec.msgpack.encode([0.0, events, 0])
        if how == "garbage":
            payload = payload[:-3]
        self.buffer.append((self.number, payload))
        if how != "lost":
            self.feed.live(self.number, payload)
        self.number += 1

    def answer(self, *, left_out: int | None = None, is_refused: bool = False) -> None:
        """Answer the request for a replay, in part or not at all."""
        if not self.requests:
            return
        start = self.requests.pop()
        if is_refused:
            self.feed.replay_failed()
            return
        for index, (number, payload) in enumerate(list(self.buffer)):
            if number >= start and index != left_out:
                self.feed.replayed(number, payload)
        self.feed.replay_ended()

    def settle(self) -> None:
        """Publish once more and answer until nothing is asked."""
        self.publish(stored=[0])
        for _ in range(50):
            self.answer()
        while self.requests:
            self.answer()


IDS = st.lists(st.integers(1, 12), max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["sent", "sent", "lost", "garbage"]),
            IDS,
            IDS,
        ),
        st.tuples(st.just("answer"), st.none() | st.integers(0, 20), st.booleans()),
        st.tuples(st.sampled_from(["restart", "reconnect"]), st.none(), st.none()),
    ),
    max_size=40,
)


def run(engine: Engine, steps: Any) -> None:
    for action, first, second in steps:
        if action == "answer":
            engine.answer(left_out=first, is_refused=second)
        elif action == "restart":
            engine.start()
            engine.requests = []
            engine.feed.disconnected()
            engine.feed.connected()
        elif action == "reconnect":
            engine.requests = []
            engine.feed.disconnected()
            engine.feed.connected()
        else:
            engine.publish(stored=first, removed=second, how=action)
    engine.settle()


@settings(max_examples=5 * settings().max_examples)
@given(STEPS, st.sampled_from([3, 1000]), st.booleans())
def test_a_feed_never_has_a_block_that_was_removed(
    steps: Any, buffered: int, has_replay: bool
) -> None:
    engine = Engine(buffered=buffered, has_replay=has_replay)
    run(engine, steps)
    assert engine.blocks.ids <= engine.ids
    assert not engine.feed.is_replaying


@settings(max_examples=3 * settings().max_examples)
@given(STEPS)
def test_a_feed_has_all_blocks_if_replays_have_all_batches(steps: Any) -> None:
    steps = [("lost", *step[1:]) if step[0] == "garbage" else step for step in steps]
    steps = [("answer", None, False) if step[0] == "answer" else step for step in steps]
    engine = Engine()
    run(engine, steps)
    assert engine.blocks.ids == engine.ids


def test_a_gap_is_closed_by_a_replay() -> None:
    engine = Engine()
    engine.answer()
    engine.publish(stored=[1, 2])
    engine.publish(removed=[1], how="lost")
    engine.publish(stored=[3])
    assert engine.blocks.ids == {1, 2}
    assert engine.requests == [1]
    engine.publish(stored=[4])
    engine.answer()
    assert engine.blocks.ids == {2, 3, 4}
    assert (engine.feed.counts.gaps, engine.feed.counts.drops) == (1, 0)


@pytest.mark.parametrize("has_replay", [True, False])
def test_a_gap_that_stays_drops_all_blocks(has_replay: bool) -> None:
    engine = Engine(buffered=1, has_replay=has_replay)
    engine.answer()
    engine.publish(stored=[1, 2])
    engine.publish(removed=[1], how="lost")
    engine.publish(stored=[3])
    engine.answer(is_refused=True)
    assert engine.blocks.ids == {3}
    assert engine.feed.counts.drops == 1
    assert engine.feed.counts.failed_replays == has_replay


def test_a_number_that_goes_back_is_a_restart() -> None:
    engine = Engine()
    engine.answer()
    engine.publish(stored=[1])
    engine.publish(stored=[2])
    engine.start()
    engine.publish(stored=[5])
    engine.answer()
    assert engine.blocks.ids == {5}
    assert engine.feed.counts.restarts == 1


def test_a_batch_that_arrives_live_and_by_replay_counts_once() -> None:
    engine = Engine()
    for one in range(5):
        engine.publish(stored=[one])  # they wait for the first replay
    assert engine.blocks.ids == set()
    engine.answer()
    assert engine.feed.counts.batches == 5
    assert engine.feed.counts.restarts == 0


def test_batches_that_wait_for_a_replay_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_WAITING", 10)
    engine = Engine()
    for one in range(11):
        engine.publish(stored=[one])
    assert engine.blocks.ids == set(range(11))
    assert engine.feed.counts.failed_replays == 1


def test_the_rest_of_a_replay_that_was_cut_off_is_requested() -> None:
    engine = Engine()
    engine.publish(stored=[1], how="lost")
    engine.publish(stored=[2], how="lost")
    engine.publish(stored=[3])
    engine.feed.replayed(*engine.buffer[0])
    engine.feed.replay_cut()
    assert engine.requests == [1]
    engine.answer()
    assert engine.blocks.ids == {1, 2, 3}


def test_a_replay_that_is_cut_off_before_it_has_anything_has_failed() -> None:
    engine = Engine()
    engine.feed.replay_cut()
    assert not engine.feed.is_replaying
    assert engine.feed.counts.failed_replays == 1


def test_a_fault_while_a_batch_is_applied_is_logged_and_skips_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(has_replay=False)
    engine.publish(stored=[1])
    with monkeypatch.context() as patch:
        patch.setattr(engine.blocks, "apply", lambda *_, **__: 1 / 0)
        engine.publish(stored=[2])
    assert "a batch of KV events is not applied" in caplog.text
    assert engine.feed.counts.garbage == 1
    engine.publish(stored=[3])
    assert engine.blocks.ids == {3}  # the batch that is missing counts as lost
