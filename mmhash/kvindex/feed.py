"""The batches of one publisher, in order: gaps, replays and restarts. No I/O, no clock.

A publisher numbers its batches from 0, and keeps the last batches for replays. A replay starts at a
number that the feed requests. The publisher sends the batches that it still has from there on, then
an end marker. A lost batch may have removed blocks, so after a loss the feed drops all blocks: an
index may miss a block, but never names one that the engine removed.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mmhash.errors import InputValueError, LimitError
from mmhash.kvindex.events import Batch, parse_batch

# How many live batches may wait for a replay. If more wait, the publisher outruns its replays.
MAX_WAITING = 10_000
MAX_WAITING_BYTES = 64 << 20

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class FeedCounts:
    """Counts of a feed since its creation."""

    batches: int = 0
    events: int = 0
    gaps: int = 0
    replays: int = 0
    failed_replays: int = 0
    restarts: int = 0
    drops: int = 0
    garbage: int = 0


class BlockStore(Protocol):
    """The blocks that a feed changes."""

    def apply(self, batch: Batch, *, is_live: bool) -> None:
        """Apply one batch."""

    def drop(self) -> None:
        """Drop all blocks."""


class Feed:
    """Puts one publisher's batches in order, and applies them to its blocks.

    `replay` requests all batches from a number on, and is None if the publisher offers no replays.
    The batches arrive as calls of `replayed`, and then `replay_ended` or `replay_cut` is called.
    """

    def __init__(self, blocks: BlockStore, replay: Callable[[int], None] | None) -> None:
        self.counts = FeedCounts()
        self._blocks = blocks
        self._replay = replay
        self._reset()

    def _reset(self) -> None:
        self._next: int | None = None  # None: start with whichever batch comes first
        self._last_live = -1
        self.is_replaying = False  # from the request of a replay to its end
        self._waiting: deque[tuple[int, bytes]] = deque()  # until the replay ends
        self._waiting_bytes = 0
        self._start = 0  # the number at which the last replay began
        self._hole: int | None = None  # the first number of a replay that left out other batches
        self._has_progress = False

    @property
    def is_late(self) -> bool:
        """True while batches that have arrived wait for a replay."""
        return bool(self._waiting)

    def connected(self) -> None:
        """Request the batches that were published before the connection."""
        if not self.is_replaying:
            self._request(0)

    def disconnected(self) -> None:
        """Drop everything: after a reconnect, the publisher may be another process."""
        self._drop()
        self._reset()

    def live(self, number: int, payload: bytes) -> None:
        """Take a batch from the subscription."""
        if number <= self._last_live:
            self.counts.restarts += 1
            self.disconnected()
            self._request(0)
        self._last_live = number
        if not self.is_replaying:
            self._take(number, payload)
            return
        self._wait(number, payload)
        if len(self._waiting) > MAX_WAITING or self._waiting_bytes > MAX_WAITING_BYTES:
            self.replay_failed()

    def replayed(self, number: int, payload: bytes) -> None:
        """Take a batch from a replay."""
        if not self.is_replaying:
            return
        if self._next is None or number == self._next:
            if self._apply(number, payload, is_live=False):
                self._has_progress = True
        elif number > self._next and self._hole is None:
            self._hole = number

    def replay_ended(self) -> None:
        """Apply the batches that waited for the replay, or request what the replay left out."""
        if not self.is_replaying:
            return
        hole = self._hole
        if self._next is None and self._start == 0:
            self._next = 0  # nothing was published yet
        if self._is_behind() and self._has_progress:
            self._request(self._next or 0)  # a full queue drops part of a long replay
        elif self._is_behind():
            self._drop()
            if hole is None:
                self._finish()
            else:
                self._request(hole)
        else:
            self._finish()

    def replay_cut(self) -> None:
        """Request the rest of a replay that stopped, if it delivered anything."""
        if self.is_replaying and self._has_progress:
            self._request(self._next or 0)
        else:
            self.replay_failed()

    def replay_failed(self) -> None:
        """Continue without a replay that took too long, or for which too many batches wait."""
        if not self.is_replaying:
            return
        self.counts.failed_replays += 1
        if self._is_behind():
            self._drop()
        self._finish()

    def _is_behind(self) -> bool:
        """True if a batch is missing between the applied batches and the next ones."""
        if self._next is None:
            return False
        is_first_later = bool(self._waiting) and self._waiting[0][0] > self._next
        return self._hole is not None or is_first_later

    def _finish(self) -> None:
        """End the replay, and apply the batches that waited for it, up to the next gap."""
        self.is_replaying = False
        self._hole = None
        waiting, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        while waiting and not self.is_replaying:
            self._take(*waiting.popleft())
        for number, payload in waiting:
            self._wait(number, payload)

    def _take(self, number: int, payload: bytes) -> None:
        """Apply a batch of the subscription, or request the batches missing before it."""
        if self._next is not None and number < self._next:
            return  # a replay already had this batch
        if self._next is not None and number > self._next:
            self.counts.gaps += 1
            if self._replay is not None:
                self._request(self._next)
                self._wait(number, payload)
                return
            self._drop()
        self._apply(number, payload, is_live=True)

    def _wait(self, number: int, payload: bytes) -> None:
        self._waiting.append((number, payload))
        self._waiting_bytes += len(payload)

    def _request(self, start: int) -> None:
        """Request a replay; until it ends, newly published batches wait."""
        if self._replay is None:
            return
        self._start, self._hole, self._has_progress = start, None, False
        self.is_replaying = True
        self._replay(start)

    def _apply(self, number: int, payload: bytes, *, is_live: bool) -> bool:
        """Apply a batch. Return False if it is invalid; then the next batch reveals a gap."""
        try:
            batch = parse_batch(payload)
            self._blocks.apply(batch, is_live=is_live)
        except Exception as error:  # one publisher must not end the index for all
            if not isinstance(error, (InputValueError, LimitError)):
                logger.exception("a batch of KV events is not applied")
            self.counts.garbage += 1
            return False
        self._next = number + 1
        self.counts.batches += 1
        self.counts.events += len(batch.events)
        return True

    def _drop(self) -> None:
        """Forget all blocks; accept the next batch whatever its number."""
        if self._next is not None:
            self.counts.drops += 1
        self._next = None
        self._blocks.drop()
