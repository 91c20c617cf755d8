"""The publishers of a worker's KV events, and the connections to each."""

import contextlib
import re
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from mmhash.errors import InputValueError
from mmhash.kvindex.events import Changes
from mmhash.kvindex.feed import Feed
from mmhash.kvindex.loop import SLICE_S, SocketLoop
from mmhash.kvindex.ranks import Ranks
from mmhash.kvindex.replay import Replay
from mmhash.kvindex.subscriber import read_message, request_replay, subscribe_monitored

MAX_RANKS = 256

_ENDPOINT = re.compile(r"(tcp://[^\s/]+:)(\d{1,5})|(ipc|inproc)://\S+")
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


class Timeouts(NamedTuple):
    """The seconds without an answer after which a worker is dropped, and a replay is cut off."""

    silence_s: float
    replay_s: float


@dataclass
class Source:
    """The connections to one publisher: a `Holder` of its feed."""

    worker: Worker
    number: int
    ranks: Ranks
    loop: SocketLoop
    timeouts: Timeouts
    is_connected: bool = False
    disconnects: int = 0
    _events: Any = None
    _monitor: Any = None
    _replay: Replay | None = None
    _published: set[int] = field(default_factory=set)
    _lag_s: float = 0.0
    _heard: float = 0.0
    _replay_until: float = 0.0
    _gap_since: float | None = None

    def __post_init__(self) -> None:
        worker = self.worker
        self._endpoint = _rank_endpoint(worker.events, self.number, "events")
        self._replay_endpoint = (
            None if worker.replay is None else _rank_endpoint(worker.replay, self.number, "replay")
        )
        self.feed = Feed(self, None if worker.replay is None else self._ask)

    def open(self) -> None:
        """Connect to the publisher."""
        self._events, self._monitor = subscribe_monitored(
            self.loop.context, self._endpoint, silence_s=self.timeouts.silence_s
        )
        self.loop.watch(self._monitor, self._read_monitor)
        self.loop.watch(self._events, self._read_events)

    def close(self) -> None:
        """Close the connections, and drop the blocks."""
        self._close_replay()
        if self._events is None:
            return
        self.loop.unwatch(self._events)
        self.loop.unwatch(self._monitor)
        self._events.disable_monitor()
        self._monitor.close()
        self._events.close()
        self._events = self._monitor = None
        self.is_connected = False
        self.feed.disconnected()

    def lag_s(self) -> float:
        """Return the seconds by which the blocks are late."""
        since = self._gap_since
        if since is None or not self.feed.is_late:
            return self._lag_s
        return max(self._lag_s, time.monotonic() - since)

    def check(self, now: float) -> None:
        """Look at the time-outs."""
        if self.feed.is_replaying:
            if now > self._replay_until:
                self._close_replay()
                self.feed.replay_cut()  # an end that was dropped, or no answer
        elif self.is_connected and now - self._heard > self.timeouts.silence_s / 2:
            self._heard = now
            self.feed.probe()

    def apply(self, changes: Changes, *, is_live: bool) -> None:
        """Apply one batch to the rank that published it."""
        number = self.number if changes.rank is None else changes.rank
        self.ranks.get(number).apply(changes.events)
        self._published.add(number)
        if is_live:
            self._lag_s = max(0.0, time.time() - changes.time)

    def drop(self) -> None:
        """Drop the blocks of the ranks that publish here."""
        self.ranks.clear(self._published)

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
        until = time.monotonic() + SLICE_S
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
        self._replay_until = time.monotonic() + self.timeouts.replay_s
        self._gap_since = time.monotonic() if self._gap_since is None else self._gap_since
        with contextlib.suppress(zmq.Again):  # then it times out
            socket = request_replay(self.loop.context, self._replay_endpoint or "", start)
            self._replay = Replay(socket)
            self.loop.watch(socket, self._read_replay)

    def _read_replay(self) -> None:
        replay = self._replay
        if replay is None:
            return
        self.feed.counts.garbage += replay.receive()
        self._heard = time.monotonic()
        self._replay_until = self._heard + self.timeouts.replay_s
        if replay.has_end or replay.is_cut:
            self.loop.unwatch(replay.socket)
            replay.socket.close()
        self.loop.repeat(self._apply_replay)

    def _apply_replay(self) -> bool:
        """Apply a part of a replay; return True if there is more."""
        replay = self._replay
        if replay is None:
            return False
        until = time.monotonic() + SLICE_S
        while replay.batches and time.monotonic() < until:
            self.feed.replayed(*replay.take())
        self._replay_until = time.monotonic() + self.timeouts.replay_s
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
            self.loop.unwatch(self._replay.socket)
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
