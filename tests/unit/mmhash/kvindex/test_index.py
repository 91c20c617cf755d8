"""Workers and their endpoints, wrong arguments, and events applied to ranks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mmhash.errors import ClosedError, InputTypeError, InputValueError, MMHashError
from mmhash.kvindex import Index, Worker
from mmhash.kvindex.events import Batch, BlocksRemoved, BlocksStored, CacheCleared
from mmhash.kvindex.rank import Rank

EVENTS = "tcp://127.0.0.1:5557"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"events": "127.0.0.1:5557"}, "events must be an endpoint"),
        ({"events": "tcp://127.0.0.1"}, "events must be an endpoint"),
        ({"events": "http://127.0.0.1:5557"}, "events must be an endpoint"),
        ({"replay": "tcp://127.0.0.1:port"}, "replay must be an endpoint"),
        ({"ranks": 0}, "1 to 256 ranks"),
        ({"ranks": 257}, "1 to 256 ranks"),
        ({"ranks": 2, "events": "ipc:///run/events"}, "several ranks must have a port"),
        ({"ranks": 2, "replay": "tcp://127.0.0.1:65535"}, "replay must be an endpoint"),
        ({"events": "tcp://127.0.0.1:70000"}, "events must be an endpoint"),
        ({"events": "tcp://127.0.0.1:0"}, "events must be an endpoint"),
    ],
)
def test_a_worker_that_cannot_be_is_a_named_error(options: dict[str, object], text: str) -> None:
    with pytest.raises(InputValueError, match=text):
        Worker("http://a", **{"events": EVENTS, **options})


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_blocks": "9"}, InputTypeError, "max_blocks must be an int, not str"),
        ({"max_blocks": 0}, InputValueError, "max_blocks must be at least 1, not 0"),
        (
            {"silence_s": None},
            InputTypeError,
            "silence_s must be a number of seconds, not NoneType",
        ),
        ({"silence_s": 0}, InputValueError, "silence_s must be more than 0 seconds, not 0"),
        ({"replay_s": "5"}, InputTypeError, "replay_s must be a number of seconds, not str"),
        (
            {"replay_s": float("nan")},
            InputValueError,
            "replay_s must be more than 0 seconds, not nan",
        ),
    ],
)
def test_a_wrong_option_of_an_index_is_an_error(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Each was an error of the index's thread, which ended, or an index without any block."""
    with pytest.raises(error, match=f"^{text}$"):
        Index(**options)


def rank_of(index: Index, url: str = "http://a") -> Rank:
    (source,) = index._workers[url]
    return source.rank


@pytest.fixture(name="index")
def _index() -> Iterator[Index]:
    index = Index([Worker("http://a", EVENTS)])
    rank = rank_of(index)
    rank.apply(Batch(0.0, [BlocksStored([1, 2], 16)]), is_live=False)
    yield index
    index.stop()


def test_ids_may_be_numbers_of_numpy(index: Index) -> None:
    """A negative one was an OverflowError of numpy."""
    assert index.match(np.array([1, 2]))["http://a"].tokens == 32
    assert index.match(np.array([1, -2]))["http://a"].tokens == 16
    assert index.match(np.array([1, (2).to_bytes(32, "big")], object))["http://a"].tokens == 32


def test_an_index_runs_once() -> None:
    """A second start was a RuntimeError of the thread, and a late worker one connection too many."""
    with Index() as index, pytest.raises(MMHashError, match=r"^the index is started already$"):
        index.start()
    with pytest.raises(ClosedError, match=r"^the index is stopped$"):
        index.start()
    with pytest.raises(ClosedError, match=r"^the index is stopped$"):
        index.add(Worker("http://a", EVENTS))
    index.stop()


@pytest.mark.parametrize("replay", ["tcp://*:5558", "ipc://" + "x" * 200])
def test_a_replay_endpoint_that_zeromq_refuses_is_an_error_of_add(replay: str) -> None:
    """Each connection waited for a replay that was never asked for."""
    with pytest.raises(InputValueError, match="replay must be an endpoint"):
        Index([Worker("http://a", EVENTS, replay)])


def test_events_change_the_rank_that_published_them() -> None:
    blocks = Index([Worker("http://a", EVENTS, ranks=3)])
    first, second, third = (source.rank for source in blocks._workers["http://a"])
    first.apply(Batch(0.0, [BlocksStored([1, 2], 16)]), is_live=False)
    second.apply(Batch(0.0, [BlocksStored([1], 16)], 1), is_live=False)
    third.apply(Batch(0.0, [BlocksStored([1], 8)], 5), is_live=False)  # the third of ranks 3 to 5
    match = blocks.match([1, 2])["http://a"]
    assert (match.tokens, match.rank) == (32, 0)
    assert match.ranks == {0: 32, 1: 16, 5: 8}
    assert [blocks.rank_with("http://a", one) for one in (1, 2, 3)] == [0, 0, None]
    assert blocks.rank_with("http://b", 1) is None
    first.apply(Batch(0.0, [BlocksRemoved([2]), CacheCleared()]), is_live=False)
    assert blocks.match([1, 2])["http://a"].ranks == {1: 16, 5: 8}
    stats = blocks.stats().workers["http://a"]
    assert (stats.blocks, stats.block_size) == (2, 16)
    second.drop()
    assert blocks.match([1, 2])["http://a"].ranks == {5: 8}
    blocks.stop()


def test_a_block_is_held_until_its_last_copy_is_removed(index: Index) -> None:
    """Engines publish a copy for each tier."""
    rank = rank_of(index)
    rank.apply(Batch(0.0, [BlocksStored([1, 2], 16), BlocksRemoved([1, 2])]), is_live=False)
    assert index.match([1, 2])["http://a"].tokens == 32
    rank.apply(Batch(0.0, [BlocksRemoved([2])]), is_live=False)
    assert index.match([1, 2])["http://a"].tokens == 16


def test_a_worker_that_restarts_may_have_another_rank_and_smaller_blocks() -> None:
    """Its matches were too long by the size from before."""
    blocks = Index([Worker("http://a", EVENTS)], max_blocks=1)
    rank = rank_of(blocks)
    rank.apply(Batch(0.0, [BlocksStored([1, 2], 32)], 0), is_live=False)
    rank.drop()
    assert blocks.stats().workers["http://a"].block_size == 0
    rank.apply(Batch(0.0, [BlocksStored([1], 16)], 3), is_live=False)
    match = blocks.match([1])["http://a"]
    assert (match.tokens, match.rank, match.ranks) == (16, 3, {3: 16})
    stats = blocks.stats().workers["http://a"]
    assert (stats.block_size, stats.evicted) == (16, 1)
    blocks.stop()


def test_blocks_have_the_size_that_they_have_after_all_were_cleared(index: Index) -> None:
    rank = rank_of(index)
    rank.apply(Batch(0.0, [CacheCleared(), BlocksStored([1, 2], 8)]), is_live=False)
    assert index.match([1, 2])["http://a"].tokens == 16
    assert index.stats().workers["http://a"].block_size == 8


def test_a_match_never_has_the_blocks_of_a_rank_that_came_meanwhile() -> None:
    """Holders are used again: a match in another thread may have begun with the one before."""
    blocks = Index([Worker("http://a", EVENTS), Worker("http://b", EVENTS)])
    a, b = rank_of(blocks), rank_of(blocks, "http://b")
    a.apply(Batch(0.0, [BlocksStored([1], 16)]), is_live=False)
    match = blocks.table.match

    def match_late(ids: Any) -> Any:
        runs = match(ids)
        a.drop()
        b.apply(Batch(0.0, [BlocksStored([9], 16)]), is_live=False)
        return runs

    blocks.table.match = match_late  # type: ignore[method-assign]
    assert {url: one.tokens for url, one in blocks.match([1]).items()} == {
        "http://a": 0,
        "http://b": 0,
    }
    blocks.stop()


def test_blocks_of_an_unknown_worker_are_refused() -> None:
    with Index() as index, pytest.raises(InputValueError, match="no worker"):
        index.hold("http://a:1", [1])
