"""A worker whose KV events try to take the requests, the memory or the index of the others.

Batches have limits on bytes, blocks, ranks and groups. Events change only their own worker.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import zmq
from msgspec import msgpack

from mmhash.errors import InputValueError, LimitError
from mmhash.kvindex import Index, Worker, events
from mmhash.kvindex.events import Batch, BlocksRemoved, BlocksStored, CacheCleared, parse_batch
from mmhash.kvindex.rank import Rank
from mmhash.kvindex.source import MAX_REPLAYS_PER_CHECK
from mmhash.kvindex.table import MAX_GROUPS, MAX_GROUPS_OF_HOLDER, BlockTable
from tests.support.kv_publisher import Publisher, stored
from tests.support.waiting import wait_until

HOSTILE, HONEST = "http://hostile", "http://honest"
ENDPOINT = "tcp://127.0.0.1:5557"


@pytest.fixture
def index() -> Iterator[Index]:
    """An index of two workers that are not connected."""
    made = Index([Worker(HOSTILE, ENDPOINT), Worker(HONEST, ENDPOINT)])
    yield made
    made.stop()


def rank_of(index: Index, url: str) -> Rank:
    (source,) = index._workers[url]
    return source.rank


def apply(index: Index, url: str, *changes: Any) -> None:
    rank_of(index, url).apply(Batch(0.0, list(changes)), is_live=True)


def batch(*changes: Any, time: Any = 0.0, rank: Any = 0) -> bytes:
    return msgpack.encode([time, changes, rank])


def many(count: int) -> bytes:
    """A batch of one event with blocks of one byte each."""
    head = msgpack.encode({"type": "BlockStored", "block_size": 16, "block_hashes": []})
    return (
        b"\x93\xca\0\0\0\0\x91"
        + head[:-1]
        + struct.pack(">BI", 0xDD, count)
        + b"\1" * count
        + b"\0"
    )


SKIPPED = b"\x93\xca\0\0\0\0\x91\x82\xa4type\xabBlockStored\xa1x"
BATCHES = {
    "deep": b"\x91" * (8 << 20),
    "deep in a field that is skipped": SKIPPED + b"\x91" * (8 << 20),
    "deep names": b"\x81\xa0" * (4 << 20),
    "billions of events": b"\x93\xca\0\0\0\0\xdd\xff\xff\xff\xff",
    "a million blocks": many(1 << 20),
    "a million blocks in many events": batch(
        *[{"type": "BlockStored", "block_size": 1, "block_hashes": [*range(1000)]}] * 1049
    ),
    "endless time": batch(time=float("inf")),
    "time before all": batch(time=float("-inf")),
    "no time": batch(time=float("nan")),
    "a block of all tokens": batch({**stored(1), "block_size": 1 << 63}),
    "a block of too many tokens": batch({**stored(1), "block_size": 1 << 17}),
    "a block of less than no tokens": batch({**stored(1), "block_size": -1}),
    "an older release's block of all tokens": batch(["BlockStored", [1], None, [], 1 << 40, None]),
    "a block by a float": batch({**stored(1), "block_hashes": [1.5]}),
    "a block by a list": batch({**stored(1), "block_hashes": [[1]]}),
    "a group by name": batch(stored(1, group_idx="0")),
    "a rank by name": batch(stored(1), rank="0"),
}


@pytest.mark.parametrize("payload", BATCHES.values(), ids=BATCHES)
def test_a_malformed_batch_is_refused_whole(payload: bytes) -> None:
    with pytest.raises(InputValueError):
        parse_batch(payload)


@pytest.mark.parametrize(
    "change",
    [
        lambda number: [BlocksStored([1], 16, group=number)],
        lambda number: [BlocksStored([1], 16, group=number), BlocksRemoved([1], group=number)],
        lambda number: [BlocksStored([], 16, group=number, kv_cache_spec_kind="mamba")],
        lambda number: [
            BlocksStored([1], 16, group=number, kv_cache_spec_kind="mamba"),
            BlocksRemoved([1], group=number),
        ],
    ],
    ids=["groups", "empty groups", "no blocks", "windows"],
)
def test_one_worker_cannot_use_up_the_groups_of_the_others(
    index: Index, change: Callable[[int], list[Any]]
) -> None:
    for number in range(1, 4 * MAX_GROUPS):
        try:
            apply(index, HOSTILE, *change(number))
        except LimitError:
            assert number > MAX_GROUPS_OF_HOLDER
    apply(
        index,
        HONEST,
        BlocksStored([1], 16),
        BlocksStored([1], 16, group=1),
    )
    assert index.match([1])[HONEST].tokens == 16
    assert len(index.table._groups) <= MAX_GROUPS
    assert max(map(len, index.table._layouts.values())) <= MAX_GROUPS_OF_HOLDER


def test_the_groups_of_workers_that_are_gone_are_free_again(index: Index) -> None:
    for life in range(8):
        for number in range(MAX_GROUPS_OF_HOLDER):
            apply(index, HOSTILE, BlocksStored([1], 16, group=1 + 100 * life + number))
        rank_of(index, HOSTILE).drop()
    apply(index, HONEST, BlocksStored([1], 16))
    assert index.match([1])[HONEST].tokens == 16


def test_a_batch_of_clears_costs_one_clear(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a walk through all groups, and a batch may have 65 536 of them."""
    cleared: list[int] = []
    clear = BlockTable.clear

    def count(table: BlockTable, holder: int) -> None:
        cleared.append(holder)
        clear(table, holder)

    monkeypatch.setattr(BlockTable, "clear", count)
    apply(
        index,
        HOSTILE,
        BlocksStored([1], 16),
        *[CacheCleared()] * events.MAX_EVENTS,
        BlocksStored([2], 16),
    )
    assert len(cleared) == 1
    assert index.match([1])[HOSTILE].tokens == 0
    assert index.match([2])[HOSTILE].tokens == 16


@pytest.mark.slow
def test_numbers_that_no_batch_has_leave_the_index_running() -> None:
    with Publisher() as hostile, Publisher() as honest:
        workers = [Worker(HOSTILE, hostile.events, hostile.replay), Worker(HONEST, honest.events)]
        with Index(workers, silence_s=1, replay_s=1) as index:
            wait_until(lambda: all(one.is_connected for one in index.stats().workers.values()))
            for number in ((1 << 64) - 1, (1 << 63) - 1, 1 << 63):
                hostile.send_frames([b"", number.to_bytes(8, "big"), batch(stored(1))])
            wait_until(lambda: index.stats().workers[HOSTILE].garbage == 3)

            def is_known() -> bool:
                honest.publish(stored(1))  # until its subscription is there: it has no replays
                return index.match([1])[HONEST].tokens == 16

            wait_until(is_known)


@pytest.mark.slow
@pytest.mark.parametrize("step", [-1, 2], ids=["back", "on"])
def test_numbers_that_jump_open_few_connections(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each jump needs a replay, on a connection of its own."""
    checks, check = 0, Index._check

    def count_checks(index: Index, now: float) -> None:
        nonlocal checks
        checks += 1
        check(index, now)

    monkeypatch.setattr(Index, "_check", count_checks)
    with Publisher() as hostile, Publisher() as honest:
        workers = [
            Worker(HOSTILE, hostile.events, hostile.replay),
            Worker(HONEST, honest.events, honest.replay),
        ]
        with Index(workers) as index:
            wait_until(lambda: all(one.is_connected for one in index.stats().workers.values()))
            number, sent, end = 1 << 40, 0, checks + 3
            while checks < end:
                number, sent = number + step, sent + 1
                hostile.send_frames([b"", number.to_bytes(8, "big"), batch(stored(1))])
                if sent % 1000 == 0:
                    honest.publish(stored(sent))
                    wait_until(lambda: index.match([sent])[HONEST].tokens == 16)  # noqa: B023
            replays = index.stats().workers[HOSTILE].replays
            assert 0 < replays <= MAX_REPLAYS_PER_CHECK * (checks + 1)


@pytest.mark.slow
def test_an_endless_replay_leaves_the_index_to_the_others() -> None:
    with ExitStack() as stack:
        hostile = stack.enter_context(Publisher(has_replay=False))
        honest = stack.enter_context(Publisher())
        router = stack.enter_context(zmq.Context()).socket(zmq.ROUTER)
        stack.callback(router.close, linger=0)
        router.bind("tcp://127.0.0.1:*")
        replay = router.getsockopt_string(zmq.LAST_ENDPOINT)
        workers = [
            Worker(HOSTILE, hostile.events, replay),
            Worker(HONEST, honest.events, honest.replay),
        ]
        index = stack.enter_context(Index(workers))
        peer, *_ = router.recv_multipart()
        for number in range(30_000):
            with suppress(zmq.Again):
                head = number.to_bytes(8, "big")
                message = [peer, b"", b"", head, batch(stored(number))]
                router.send_multipart(message, zmq.NOBLOCK)
            if number % 1000 == 0:
                honest.publish(stored(number))
                wait_until(lambda: index.match([number])[HONEST].tokens == 16)  # noqa: B023
        wait_until(lambda: index.stats().workers[HOSTILE].batches > 1000)


def test_blocks_of_a_batch_that_is_refused_in_part_are_dropped(index: Index) -> None:
    groups = [BlocksStored([1], 16, group=number) for number in range(MAX_GROUPS_OF_HOLDER + 1)]
    with pytest.raises(LimitError):
        apply(index, HOSTILE, *groups)
    assert index.match([1])[HOSTILE].tokens == 16
    rank_of(index, HOSTILE).drop()
    assert index.match([1])[HOSTILE].tokens == 0
