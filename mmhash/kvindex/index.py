"""The KV index: how much of a prompt each worker has in its caches, from the workers' events.

One thread reads the events of all workers. It needs no event loop, so scripts and services use the
same class; garbage, replays and a burst of events cost the event loop nothing but its share of the
interpreter lock, which the thread gives up after each millisecond of work. Readers take no lock.
"""

import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

import zmq
from msgspec import Struct
from zmq.utils.monitor import recv_monitor_message

from mmhash.errors import InputValueError, LimitError
from mmhash.kvindex.events import Changes, Cleared, Removed, Stored
from mmhash.kvindex.feed import Counts, Feed
from mmhash.kvindex.replay import Replay
from mmhash.kvindex.subscriber import (
    Context,
    read_message,
    request_replay,
    subscribe,
    subscribe_monitored,
)
from mmhash.kvindex.table import MAX_HOLDERS, BlockTable, Runs, block_ids

MAX_RANKS = 256
DEFAULT_TIER = "GPU"  # older releases do not name it

_ENDPOINT = re.compile(r"(tcp://[^\s/]+:)(\d{1,5})|(ipc|inproc)://\S+")
_SLICE_S = 0.001
_REST_S = 0.0001
_POLL_MS = 50
_BATCHES_AT_ONCE = 64


@dataclass(frozen=True)
class Worker:
    """An engine and where it publishes its KV events.

    `replay` is its endpoint for replays; without one, each gap drops the worker's blocks. Rank n of
    a worker with several data-parallel ranks publishes at port + n of both, as vLLM and SGLang do.
    `engine` is for the caller: blocks are named by the engine's own recipe.
    """

    url: str
    events: str
    replay: str | None = None
    engine: str | None = None
    ranks: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.ranks <= MAX_RANKS:
            raise InputValueError(f"a worker has 1 to {MAX_RANKS} ranks, not {self.ranks}")
        for name, endpoint in (("events", self.events), ("replay", self.replay)):
            if endpoint is not None:
                _rank_endpoint(endpoint, self.ranks - 1, name)


class Match(Struct):  # made in a fifth of a NamedTuple's time, 32 of them for each match
    """The leading tokens of a prompt that a worker has: in any tier, and in each tier.

    The figures are those of the rank that has most; `ranks` has the tokens of each rank.
    """

    tokens: int
    tiers: dict[str, int]
    rank: int
    ranks: dict[int, int]


@dataclass(frozen=True)
class WorkerStats:
    """The state of a worker, and counts of all its ranks since it was added."""

    blocks: int
    tiers: dict[str, int]
    is_connected: bool
    is_healthy: bool
    # Seconds from an event's own time to its arrival here, or since a gap that is not closed yet.
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


class Stats(NamedTuple):
    """The different blocks of all workers together, and each worker by its URL."""

    blocks: int
    workers: dict[str, WorkerStats]


class Index:
    """The blocks that workers have cached, kept current by their KV events.

        with Index([Worker("http://a:8000", "tcp://a:5557", "tcp://a:5558")]) as index:
            index.match(plan.event_ids)["http://a:8000"].tokens

    A worker's blocks are dropped when it disconnects, restarts, stops answering or is unhealthy,
    and when events are lost and cannot be replayed; see docs/kvindex.md.
    """

    def __init__(
        self,
        workers: Iterable[Worker] = (),
        *,
        max_blocks: int = 1 << 20,
        silence_s: float = 10.0,
        replay_s: float = 5.0,
        health: Callable[[str], bool] | None = None,
    ) -> None:
        """Make an index; `start` connects it.

        Args:
            workers: The engines to subscribe to. `add` and `remove` change them later.
            max_blocks: The most blocks kept of one rank in one tier; the least recently stored
                are evicted first.
            silence_s: A worker that answers neither pings nor replays for so long is dropped.
            replay_s: The longest pause within a replay.
            health: Called in the index's thread with a worker's URL, once a second for each worker;
                False drops the worker's blocks until it is True again. It has to return at once.
        """
        self.silence_s = silence_s
        self.replay_s = replay_s
        self.table = BlockTable(max_blocks)
        self._health = health
        self._workers: dict[str, _WorkerState] = {}
        self._tasks: deque[Callable[[], None]] = deque()
        self._repeated: dict[Callable[[], bool], None] = {}
        self._context: Context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 4 * MAX_HOLDERS)  # a rank has up to four
        self._poller = zmq.Poller()
        self._by_socket: dict[Any, Callable[[], None]] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="mmhash-kvindex", daemon=True)
        try:
            for worker in workers:
                self.add(worker)
        except InputValueError:
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
        """Start to read events, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Close all connections and end the thread; safe to call twice."""
        self._is_stopping = True
        if self._thread.ident is not None:
            self._thread.join()
        if not self._context.closed:
            self._context.destroy(linger=0)

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers that were added and not removed."""
        return tuple(state.worker for state in list(self._workers.values()))

    def add(self, worker: Worker) -> None:
        """Subscribe to one more worker; its URL must be new."""
        if worker.url in self._workers:
            raise InputValueError(f"the index has a worker {worker.url} already")
        subscribe(self._context, worker.events).close()  # raises here, not in the thread
        state = self._workers[worker.url] = _WorkerState(worker, self)
        self._tasks.append(state.open)

    def remove(self, url: str) -> None:
        """Forget a worker and its blocks."""
        state = self._workers.pop(url, None)
        if state is None:
            raise InputValueError(f"the index has no worker {url}")
        self._tasks.append(state.close)

    def match(
        self, blocks: Iterable[int | bytes], block_size: int | None = None
    ) -> dict[str, Match]:
        """Return how many leading tokens of a prompt each worker has in its caches.

        Args:
            blocks: The ids of the prompt's blocks in order: numbers, signed or not, or the bytes of
                vLLM's block keys.
            block_size: The tokens of a block; without it, that of each worker's own events.
        """
        runs = self.table.match(block_ids(blocks))
        return {url: state.match(runs, block_size) for url, state in list(self._workers.items())}

    def stats(self) -> Stats:
        """Return counts of the index and of each worker."""
        workers = {url: state.stats() for url, state in list(self._workers.items())}
        return Stats(self.table.blocks(), workers)

    def watch(self, socket: Any, read: Callable[[], None]) -> None:
        """Call `read` in the thread when a socket has messages, as long as it has some."""
        self._poller.register(socket, zmq.POLLIN)
        self._by_socket[socket] = read

    def unwatch(self, socket: Any) -> None:
        """Undo `watch`."""
        if self._by_socket.pop(socket, None) is not None:
            self._poller.unregister(socket)

    def repeat(self, work: Callable[[], bool]) -> None:
        """Call `work` in the thread, in turn with the sockets, as long as it returns True."""
        self._repeated[work] = None

    @property
    def context(self) -> Context:
        """The context of all sockets of the index."""
        return self._context

    def _run(self) -> None:
        next_check = 0.0
        try:
            while not self._is_stopping:
                while self._tasks:
                    self._tasks.popleft()()
                self._read_ready()
                now = time.monotonic()
                if now >= next_check:
                    next_check = now + min(1.0, self.silence_s / 4, self.replay_s / 4)
                    for state in list(self._workers.values()):
                        state.check(now, self._health)
        finally:  # nothing keeps the blocks current any more
            for state in list(self._workers.values()):
                state.close()

    def _read_ready(self) -> None:
        """Read a part of what each socket has."""
        start = time.monotonic()
        if not self._by_socket:  # poll() would return at once
            time.sleep(_POLL_MS / 1000)
            return
        for socket, _ in self._poller.poll(0 if self._repeated else _POLL_MS):
            read = self._by_socket.get(socket)  # an earlier one may have closed it
            if read is None:
                continue
            read()
            if time.monotonic() - start > _SLICE_S:
                # To release the lock is not enough: a waiting thread needs time to wake up.
                time.sleep(_REST_S)
                start = time.monotonic()
        for work in list(self._repeated):
            if not work():
                del self._repeated[work]
            time.sleep(_REST_S)


class _WorkerState:
    """A worker of the index: its sources, and its ranks' blocks."""

    def __init__(self, worker: Worker, index: Index) -> None:
        self.worker = worker
        self.index = index
        self.ranks: dict[int, _Rank] = {}
        self.is_healthy = True
        self.sources = [_Source(self, number) for number in range(worker.ranks)]

    def open(self) -> None:
        if self.is_healthy:  # the first check may come before, and the next one sees no change
            for source in self.sources:
                source.open()

    def close(self) -> None:
        for source in self.sources:
            source.close()
        for rank in self.ranks.values():
            self.index.table.close(rank.holder)
        self.ranks = {}

    def rank(self, number: int) -> "_Rank":
        """Return the rank of a number, made when it first publishes."""
        rank = self.ranks.get(number)
        if rank is None:
            if len(self.ranks) >= self.worker.ranks:
                raise LimitError(
                    f"worker {self.worker.url} has {self.worker.ranks} ranks, not more"
                )
            rank = _Rank(self.index.table)
            self.ranks = {**self.ranks, number: rank}  # matches read it in other threads
        return rank

    def match(self, runs: Runs, block_size: int | None) -> Match:
        best = Match(0, {}, 0, {})
        for number, rank in self.ranks.items():
            holder = rank.holder
            blocks = runs.in_any.get(holder)
            if blocks is None:
                continue
            size = block_size or rank.block_size
            best.ranks[number] = tokens = blocks * size
            if tokens > best.tokens:
                best.tokens, best.rank = tokens, number
                best.tiers = {
                    tier: lengths[holder] * size
                    for tier, lengths in runs.in_tier.items()
                    if holder in lengths
                }
        return best

    def check(self, now: float, health: Callable[[str], bool] | None) -> None:
        """Look at time-outs, and at the worker's health."""
        is_healthy = health is None or health(self.worker.url)
        if is_healthy != self.is_healthy:
            self.is_healthy = is_healthy
            for source in self.sources:
                source.close()
                if is_healthy:
                    source.open()
        for source in self.sources:
            source.check(now)

    def stats(self) -> WorkerStats:
        tiers: dict[str, int] = {}
        for rank in self.ranks.values():
            for tier, count in self.index.table.count(rank.holder).items():
                tiers[tier] = tiers.get(tier, 0) + count
        counts = [source.feed.counts for source in self.sources]
        return WorkerStats(
            blocks=sum(tiers.values()),
            tiers=tiers,
            is_connected=all(source.is_connected for source in self.sources),
            is_healthy=self.is_healthy,
            lag_s=max(source.lag_s() for source in self.sources),
            disconnects=sum(source.disconnects for source in self.sources),
            evicted=sum(rank.evicted for rank in self.ranks.values()),
            **{name: sum(getattr(one, name) for one in counts) for name in Counts.__slots__},
        )


class _Rank:
    """The cache of one rank of a worker."""

    def __init__(self, table: BlockTable) -> None:
        self.table = table
        self.holder = table.open()
        self.block_size = 0
        self.evicted = 0

    def apply(self, events: Sequence[Stored | Removed | Cleared]) -> None:
        kept = next((n for n, one in enumerate(reversed(events)) if type(one) is Cleared), None)
        if kept is not None:  # once: a batch may have 65 536 of them, and each takes 50 µs
            self.table.clear(self.holder)
            events = events[len(events) - kept :]
        for event in events:
            assert not isinstance(event, Cleared)  # noqa: S101  (for the type checker)
            tier = event.medium or DEFAULT_TIER
            if event.ownership is not None:
                tier = f"{tier}/{event.ownership}"
            group, ids = event.group_idx or 0, block_ids(event.block_hashes)
            if not ids:
                continue
            if isinstance(event, Stored):
                # vLLM's blocks that are not full are smaller, its placeholders are 0.
                self.block_size = max(self.block_size, event.block_size)
                self.evicted += self.table.store(self.holder, tier, group, ids, window=event.window)
            else:
                self.table.remove(self.holder, tier, group, ids)


@dataclass
class _Source:
    """The connections to one publisher: a `Holder` of its feed."""

    state: _WorkerState
    number: int
    is_connected: bool = False
    disconnects: int = 0
    _events: Any = None
    _monitor: Any = None
    _replay: Replay | None = None
    _ranks: set[int] = field(default_factory=set)
    _lag_s: float = 0.0
    _heard: float = 0.0
    _replay_until: float = 0.0
    _gap_since: float | None = None

    def __post_init__(self) -> None:
        worker = self.state.worker
        self._endpoint = _rank_endpoint(worker.events, self.number, "events")
        self._replay_endpoint = (
            None if worker.replay is None else _rank_endpoint(worker.replay, self.number, "replay")
        )
        self.feed = Feed(self, None if worker.replay is None else self._ask)

    def open(self) -> None:
        index = self.state.index
        self._events, self._monitor = subscribe_monitored(
            index.context, self._endpoint, silence_s=index.silence_s
        )
        index.watch(self._monitor, self._read_monitor)
        index.watch(self._events, self._read_events)

    def close(self) -> None:
        self._close_replay()
        if self._events is None:
            return
        self.state.index.unwatch(self._events)
        self.state.index.unwatch(self._monitor)
        self._events.disable_monitor()
        self._monitor.close()
        self._events.close()
        self._events = self._monitor = None
        self.is_connected = False
        self.feed.disconnected()

    def lag_s(self) -> float:
        since = self._gap_since
        if since is None or not self.feed.is_late:
            return self._lag_s
        return max(self._lag_s, time.monotonic() - since)

    def check(self, now: float) -> None:
        index = self.state.index
        if self.feed.is_replaying:
            if now > self._replay_until:
                self._close_replay()
                self.feed.replay_cut()  # an end that was dropped, or no answer
        elif self.is_connected and now - self._heard > index.silence_s / 2:
            self._heard = now
            self.feed.probe()

    def apply(self, changes: Changes, *, is_live: bool) -> None:
        number = self.number if changes.rank is None else changes.rank
        self.state.rank(number).apply(changes.events)
        self._ranks.add(number)
        if is_live:
            self._lag_s = max(0.0, time.time() - changes.time)

    def drop(self) -> None:
        for number in self._ranks:
            self.state.index.table.clear(self.state.rank(number).holder)

    def _read_monitor(self) -> None:
        try:
            event = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
        except zmq.Again:
            return
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self.is_connected = True
            self._heard = time.monotonic()
            self.feed.connected()
        elif event == zmq.EVENT_DISCONNECTED:
            self.disconnects += self.is_connected  # else another program had the port
            # Another socket: this one still holds batches of the publisher that is gone.
            self.close()
            self.open()

    def _read_events(self) -> None:
        until = time.monotonic() + _SLICE_S
        for _ in range(_BATCHES_AT_ONCE):
            try:
                frames = self._events.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._heard = time.monotonic()
            message = read_message(frames)
            if message is None:
                self.feed.counts.garbage += 1
            else:
                self.feed.live(*message)
            if time.monotonic() > until:
                return

    def _ask(self, start: int) -> None:
        self._close_replay()
        index = self.state.index
        self._replay_until = time.monotonic() + index.replay_s
        self._gap_since = time.monotonic() if self._gap_since is None else self._gap_since
        with contextlib.suppress(zmq.Again):  # then it times out
            self._replay = Replay(request_replay(index.context, self._replay_endpoint or "", start))
            index.watch(self._replay.socket, self._read_replay)

    def _read_replay(self) -> None:
        index, replay = self.state.index, self._replay
        if replay is None:
            return
        self.feed.counts.garbage += replay.receive()
        self._heard = time.monotonic()
        self._replay_until = self._heard + index.replay_s
        if replay.has_end or replay.is_cut:
            index.unwatch(replay.socket)
            replay.socket.close()
        index.repeat(self._apply_replay)

    def _apply_replay(self) -> bool:
        """Apply a part of a replay; return if there is more."""
        replay = self._replay
        if replay is None:
            return False
        until = time.monotonic() + _SLICE_S
        while replay.batches and time.monotonic() < until:
            self.feed.replayed(*replay.take())
        self._replay_until = time.monotonic() + self.state.index.replay_s
        if replay.batches:
            return True
        if replay.socket.closed:
            self._close_replay()
            # Both may ask again.
            (self.feed.replay_ended if replay.has_end else self.feed.replay_cut)()
        return False

    def _close_replay(self) -> None:
        self._gap_since = None
        if self._replay is not None:
            self.state.index.unwatch(self._replay.socket)
            self._replay.socket.close()
            self._replay = None


def _rank_endpoint(endpoint: str, rank: int, name: str) -> str:
    """Return the endpoint of a rank, as the engines number their ports."""
    found = _ENDPOINT.fullmatch(endpoint)
    host, port = (found[1], int(found[2] or 0)) if found else (None, 0)
    if found is None or (host and not 1 <= port + rank <= 65535):
        raise InputValueError(f"{name} is an endpoint such as tcp://10.0.0.7:5557: {endpoint!r}")
    if rank == 0:
        return endpoint
    if host is None:
        raise InputValueError(f"{name} of a worker with several ranks has a port: {endpoint!r}")
    return f"{host}{port + rank}"
