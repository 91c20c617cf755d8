"""The KV events of a worker's ranks, and the connections to each rank's publisher."""

import contextlib
import re
import time
from dataclasses import dataclass
from typing import NamedTuple

from mmhash.arguments import check_int, check_optional_text, check_str
from mmhash.errors import InputValueError, LimitError, TransportError
from mmhash.kvindex.feed import Feed
from mmhash.kvindex.loop import SocketLoop
from mmhash.kvindex.rank import Rank
from mmhash.kvindex.subscriber import (
    EngineSocket,
    is_end,
    read_message,
    request_replay,
    subscribe,
)
from mmhash.kvindex.table import BlockTable

MAX_RANKS = 256

_ENDPOINT = re.compile(r"(tcp://[^\s/]+:)(\d{1,5})|ipc://\S+")
# Each replay takes a connection. A publisher whose numbers keep jumping back must not delay other
# publishers' events.
MAX_REPLAYS_PER_CHECK = 16


@dataclass(frozen=True)
class Worker:
    """An engine, and where it publishes its KV events.

    `replay` is the endpoint for replays; without one, each gap drops the worker's blocks. If a
    worker has several data-parallel ranks, rank n publishes at port + n of both endpoints, as in
    vLLM and SGLang. `engine` is for the caller: each engine names blocks by its own recipe.
    """

    url: str
    events: str
    replay: str | None = None
    engine: str | None = None
    ranks: int = 1

    def __post_init__(self) -> None:
        check_str("url", self.url)
        check_str("events", self.events)
        check_optional_text("replay", self.replay)
        check_optional_text("engine", self.engine)
        check_int("ranks", self.ranks)
        if not 1 <= self.ranks <= MAX_RANKS:
            raise InputValueError(f"a worker must have 1 to {MAX_RANKS} ranks, not {self.ranks}")
        for name, endpoint in (("events", self.events), ("replay", self.replay)):
            if endpoint is not None:
                _rank_endpoint(endpoint, self.ranks - 1, name)


class Timeouts(NamedTuple):
    """How many seconds a worker or a replay may be silent before it is dropped or cut off."""

    silence_s: float
    replay_s: float


class Source:
    """The connections to the publisher of a rank, whose batches change the rank."""

    def __init__(
        self, worker: Worker, number: int, table: BlockTable, loop: SocketLoop, timeouts: Timeouts
    ) -> None:
        """Make the source of rank `number` of a worker; `open` connects it."""
        self.worker = worker
        self.is_connected = False
        self.disconnects = 0
        self.rank = Rank(worker.url, number, table)
        self._loop = loop
        self._timeouts = timeouts
        self._endpoint = _rank_endpoint(worker.events, number, "events")
        self._replay_endpoint = worker.replay and _rank_endpoint(worker.replay, number, "replay")
        self.feed = Feed(self.rank, self._ask if worker.replay else None)
        self._is_open = False
        self._events: EngineSocket | None = None
        self._gap_since: float | None = None
        self._replays_left = MAX_REPLAYS_PER_CHECK
        self._deferred: int | None = None  # the start of a replay that the next check requests
        self._replay: EngineSocket | None = None
        self._replay_until = 0.0

    def open(self) -> None:
        """Connect to the publisher, retrying until `close`."""
        self._is_open = True
        self._connect()

    def close(self) -> None:
        """Close the connections, and drop the blocks."""
        self._is_open = False
        self._disconnect()
        self.rank.drop()  # also if no event was read

    def _connect(self) -> None:
        with contextlib.suppress(InputValueError, LimitError):  # the next check retries
            self._events = subscribe(self._loop.context, self._endpoint)
            self._loop.watch(self._events.socket, self._read_events)

    def _disconnect(self) -> None:
        self._close_replay()
        if self._events is None:
            return
        self._loop.unwatch(self._events.socket)
        self._events.close()
        self._events = None
        self.is_connected = False
        self.feed.disconnected()

    def lag_s(self) -> float:
        """Return how many seconds the blocks lag behind."""
        since = self._gap_since
        if since is None or not self.feed.is_late:
            return self.rank.lag_s
        return max(self.rank.lag_s, time.monotonic() - since)

    def check(self, now: float) -> None:
        """Check time-outs, and request a replay that an earlier limit postponed."""
        self._replays_left = MAX_REPLAYS_PER_CHECK
        if self._is_open:
            self._check_connection(now)
        if self.feed.is_replaying:
            if self._deferred is not None:
                self._request_replay(self._deferred)
            elif now > self._replay_until:
                self._close_replay()
                self.feed.replay_cut()  # the end was dropped, or there is no answer

    def _check_connection(self, now: float) -> None:
        """Reconnect, or find out whether the publisher's machine and process still run.

        The publisher's I/O thread answers pings. TCP alone notices a dead machine only after
        minutes, and a stopped process never.
        """
        if self._events is None:
            self._connect()
            return
        if self._events.unanswered_s() > self._timeouts.silence_s * 2 / 3:
            self._lose()
        elif now - self._events.heard > self._timeouts.silence_s / 3:
            self._events.ping()

    def _lose(self) -> None:
        """Close the connection; a later check opens a new one."""
        self.disconnects += self.is_connected  # otherwise another program had the port
        self._disconnect()

    def _read_events(self) -> None:
        if self._events is None:
            return
        try:
            for frames in self._events.messages():
                self._note_connection()
                message = read_message(frames)
                if message is None:
                    self.feed.counts.garbage += 1
                else:
                    self.feed.live(*message)
            self._note_connection()
        except TransportError:
            self._lose()

    def _note_connection(self) -> None:
        """Note the end of the handshake, before the first message counts."""
        if self._events is not None and self._events.is_ready and not self.is_connected:
            self.is_connected = True
            self.feed.connected()

    def _ask(self, start: int) -> None:
        self._close_replay()
        self._gap_since = time.monotonic()
        if self._replays_left:
            self._request_replay(start)
        else:
            self._deferred = start

    def _request_replay(self, start: int) -> None:
        self._deferred = None
        self._replays_left -= 1
        self.feed.counts.replays += 1
        self._replay_until = time.monotonic() + self._timeouts.replay_s
        with contextlib.suppress(InputValueError, LimitError):  # then the handshake times out
            self._replay = request_replay(self._loop.context, self._replay_endpoint or "", start)
            self._loop.watch(self._replay.socket, self._read_replay)

    def _read_replay(self) -> None:
        if not self.feed.is_replaying:  # too many batches waited for it
            self._close_replay()
        if self._replay is None:
            return
        self._replay_until = time.monotonic() + self._timeouts.replay_s
        try:
            for frames in self._replay.messages():
                if is_end(frames):
                    self._close_replay()
                    self.feed.replay_ended()  # may request another replay
                    return
                message = read_message(frames)
                if message is None:
                    self.feed.counts.garbage += 1
                else:
                    self.feed.replayed(*message)
        except TransportError:
            self._close_replay()
            self.feed.replay_cut()  # as above

    def _close_replay(self) -> None:
        self._gap_since = self._deferred = None
        if self._replay is not None:
            self._loop.unwatch(self._replay.socket)
            self._replay.close()
            self._replay = None


def _rank_endpoint(endpoint: str, rank: int, name: str) -> str:
    """Return the endpoint of a rank, as the engines number the ports."""
    found = _ENDPOINT.fullmatch(endpoint)
    host, port = (found[1], int(found[2] or 0)) if found else (None, 0)
    if found is None or (host and not 1 <= port + rank <= 65535):
        raise InputValueError(
            f"{name} must be an endpoint such as tcp://10.0.0.7:5557, not {endpoint!r}"
        )
    if rank == 0:
        return endpoint
    if host is None:
        raise InputValueError(
            f"{name} of a worker with several ranks must have a port: {endpoint!r}"
        )
    return f"{host}{port + rank}"
