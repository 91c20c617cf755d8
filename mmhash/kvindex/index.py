"""The KV index: how much of a prompt each worker has cached, according to the workers' events.

One thread reads the events of all workers. The index needs no event loop, so scripts and services
use the same class. Malformed data, replays and bursts of events cost an event loop only a share of
the interpreter lock. The thread releases the lock after each millisecond of work. Readers take no
lock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from msgspec import Struct

from mmhash.arguments import check_int, check_seconds, check_str
from mmhash.errors import InputTypeError, InputValueError, LimitError
from mmhash.kvindex.feed import FeedCounts
from mmhash.kvindex.loop import SocketLoop
from mmhash.kvindex.source import Source, Timeouts, Worker
from mmhash.kvindex.subscriber import request_replay, subscribe
from mmhash.kvindex.table import MAX_HOLDERS, BlockTable, block_id, block_ids


@dataclass(frozen=True)
class WorkerStats:
    """The state of a worker, and the counts of all its ranks since it was added."""

    blocks: int
    block_size: int  # the size of the largest block in its events since the last drop, or 0
    is_connected: bool
    # Seconds from an event's own time to its arrival here, or since a gap that is still open.
    lag_s: float
    batches: int
    events: int
    gaps: int
    replays: int
    failed_replays: int
    restarts: int
    disconnects: int
    drops: int
    garbage: int
    evicted: int


class Match(Struct):  # much faster to make than a NamedTuple, and each match makes one per worker
    """How many leading tokens of a prompt a worker has cached, and the rank that has them.

    `ranks` lists the tokens of each rank.
    """

    tokens: int
    rank: int
    ranks: dict[int, int]


class IndexStats(NamedTuple):
    """The number of distinct blocks of all workers together, and each worker's stats by its URL."""

    blocks: int
    workers: dict[str, WorkerStats]


class Index:
    """The blocks that workers have cached, kept current by their KV events.

        with Index([Worker("http://a:8000", "tcp://a:5557", "tcp://a:5558")]) as index:
            index.match(plan.event_ids)["http://a:8000"].tokens

    A worker's blocks are dropped when it disconnects, restarts or stops answering. The blocks are
    also dropped when events are lost and cannot be replayed; see docs/routing.md.
    """

    def __init__(
        self,
        workers: Iterable[Worker] = (),
        *,
        max_blocks: int = 1 << 20,
        silence_s: float = 10.0,
        replay_s: float = 5.0,
    ) -> None:
        """Make an index; `start` connects it.

        Args:
            workers: The engines to subscribe to. `add` and `remove` change them later.
            max_blocks: How many blocks of a rank to keep. The least recently stored go first.
            silence_s: How many seconds a ping may go unanswered before the worker is dropped.
            replay_s: The longest pause within a replay.
        """
        if not isinstance(workers, Iterable):
            raise InputTypeError(f"workers must be a list of Worker, not {type(workers).__name__}")
        self.table = BlockTable(check_int("max_blocks", max_blocks, 1))
        self._timeouts = Timeouts(
            check_seconds("silence_s", silence_s), check_seconds("replay_s", replay_s)
        )
        self._workers: dict[str, list[Source]] = {}  # for each rank of a worker, by its URL
        self._loop = SocketLoop(
            check=self._check,
            interval_s=min(1.0, silence_s / 4, replay_s / 4),
            close=self._close_workers,
        )
        try:
            for worker in workers:
                self.add(worker)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start reading events in a thread."""
        self._loop.start()

    def stop(self) -> None:
        """Close all connections and end the thread; safe to call twice."""
        self._loop.stop()

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers that have been added and not removed."""
        return tuple(sources[0].worker for sources in list(self._workers.values()))

    def add(self, worker: Worker) -> None:
        """Subscribe to another worker; its URL must be new."""
        if not isinstance(worker, Worker):
            kind = type(worker).__name__
            raise InputTypeError(f"a worker must be a Worker, not {kind}: pass Worker(url, events)")
        self._loop.check_open()
        if worker.url in self._workers:
            raise InputValueError(f"the index already has a worker {worker.url}")
        ranks = worker.ranks + sum(one.ranks for one in self.workers)
        if ranks > MAX_HOLDERS:
            raise LimitError(
                f"an index can hold at most {MAX_HOLDERS} ranks of workers, not {ranks}"
            )
        # Try both endpoints here, to raise their errors in the caller's thread.
        subscribe(self._loop.context, worker.events).close()
        if worker.replay is not None:
            request_replay(self._loop.context, worker.replay, 0).close()
        sources = self._workers[worker.url] = [
            Source(worker, number, self.table, self._loop, self._timeouts)
            for number in range(worker.ranks)
        ]
        for source in sources:
            self._loop.submit(source.open)

    def remove(self, url: str) -> None:
        """Forget a worker and its blocks."""
        for source in self._sources_of(url):
            self._loop.submit(source.close)
        self._workers.pop(url, None)

    def hold(self, url: str, blocks: Iterable[int | bytes], rank: int = 0) -> None:
        """Add blocks that a rank of a worker is known to hold although no event has named them.

        An engine publishes a block only when it stores the block, so an index that starts late
        would never learn about it. Events remove the block like any other.
        """
        number, ids = check_int("rank", rank, 0), block_ids(blocks)
        for source in self._sources_of(url):
            self._loop.submit(partial(source.rank.hold, number, ids))

    def _sources_of(self, url: str) -> list[Source]:
        if check_str("url", url) not in self._workers:
            raise InputValueError(f"the index has no worker {url}")
        return self._workers[url]

    def rank_with(self, url: str, block: int | bytes) -> int | None:
        """Return the number of a worker's rank that has a block, or None."""
        one = block_id(block)
        ranks = (source.rank for source in self._workers.get(url, ()))
        return next((rank.number for rank in ranks if rank.holds(one)), None)

    def match(
        self, blocks: Iterable[int | bytes], block_size: int | None = None
    ) -> dict[str, Match]:
        """Return how many leading tokens of a prompt each worker has in its caches.

        Args:
            blocks: The ids of the prompt's blocks in order: numbers, signed or not, or the bytes of
                vLLM's block keys.
            block_size: The tokens of a block; by default, the size in each worker's own events.
        """
        if isinstance(blocks, (str, bytes)) or not isinstance(blocks, Iterable):
            raise InputTypeError(f"blocks must be a list of ids, not {type(blocks).__name__}")
        if block_size is not None:
            check_int("block_size", block_size, 1)
        ranks = [
            (url, source.rank, source.rank.holder)
            for url, sources in list(self._workers.items())
            for source in sources
        ]
        runs = self.table.match(blocks if isinstance(blocks, list) else list(blocks))
        matches = {url: Match(0, 0, {}) for url, _, _ in ranks}
        for url, rank, holder in ranks:
            # A holder that has changed since the lookup may have belonged to another rank.
            if holder is None or holder not in runs or holder != rank.holder:
                continue
            match, tokens = matches[url], runs[holder] * (block_size or rank.block_size)
            match.ranks[rank.number] = tokens
            if tokens > match.tokens:
                match.tokens, match.rank = tokens, rank.number
        return matches

    def stats(self) -> IndexStats:
        """Return counts of the index and of each worker."""
        workers = {url: _stats_of(sources) for url, sources in list(self._workers.items())}
        return IndexStats(self.table.blocks(), workers)

    def _check(self, now: float) -> None:
        for source in self._sources():
            source.check(now)

    def _close_workers(self) -> None:
        """Drop all blocks when the thread ends: nothing keeps them current any more."""
        for source in self._sources():
            source.close()

    def _sources(self) -> list[Source]:
        return [source for sources in list(self._workers.values()) for source in sources]


def _stats_of(sources: Sequence[Source]) -> WorkerStats:
    """Return the state of a worker, given the sources of its ranks."""
    ranks = [source.rank for source in sources]
    counts = [source.feed.counts for source in sources]
    return WorkerStats(
        blocks=sum(rank.blocks for rank in ranks),
        block_size=max(rank.block_size for rank in ranks),
        is_connected=all(source.is_connected for source in sources),
        lag_s=max(source.lag_s() for source in sources),
        disconnects=sum(source.disconnects for source in sources),
        evicted=sum(rank.evicted for rank in ranks),
        **{name: sum(getattr(one, name) for one in counts) for name in FeedCounts.__slots__},
    )
