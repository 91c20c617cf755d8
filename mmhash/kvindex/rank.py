"""The cache of a data-parallel rank of a worker, kept current by the rank's events."""

import logging
import time
from collections.abc import Sequence

from mmhash.errors import LimitError
from mmhash.kvindex.events import Batch, BlocksRemoved, BlocksStored, CacheCleared
from mmhash.kvindex.table import BlockTable

logger = logging.getLogger(__name__)


class Rank:
    """The blocks of one rank. The index's thread changes them."""

    def __init__(self, url: str, number: int, table: BlockTable) -> None:
        self._url = url
        self._table = table
        self._has_limit_warning = False
        self.number = number
        """The engine's own number of the rank, once its events have named it."""
        self.holder: int | None = None
        """The rank's number in the table, from its first event to a drop."""
        self.evicted = 0
        self.lag_s = 0.0
        """How many seconds after its own time the last event arrived."""

    @property
    def block_size(self) -> int:
        """How many tokens a block of a list for `match` must have, or 0 without blocks."""
        return 0 if self.holder is None else self._table.block_size(self.holder)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return 0 if self.holder is None else self._table.count(self.holder)

    def apply(self, batch: Batch, *, is_live: bool) -> None:
        """Apply one batch of events."""
        if batch.rank is not None:
            self.number = batch.rank
        if self.holder is None:
            self.holder = self._table.open()
        try:
            self._apply(self.holder, batch.events)
        except LimitError as error:
            if not self._has_limit_warning:
                self._has_limit_warning = True
                logger.warning("worker %s: KV events are not applied: %s", self._url, error)
            raise
        if is_live:
            self.lag_s = max(0.0, time.time() - batch.time)

    def _apply(
        self, holder: int, events: Sequence[BlocksStored | BlocksRemoved | CacheCleared]
    ) -> None:
        table = self._table
        kept = next(
            (n for n, one in enumerate(reversed(events)) if type(one) is CacheCleared), None
        )
        if kept is not None:  # clear once, because a batch may have 65 536 such events
            table.clear(holder)
            events = events[len(events) - kept :]
        for event in events:
            if isinstance(event, BlocksStored):
                self.evicted += table.store(holder, event.group or 0, event.ids, event.layout)
            elif isinstance(event, BlocksRemoved):
                table.remove(holder, event.group or 0, event.ids)

    def holds(self, block: int) -> bool:
        """Return True if the rank has a block."""
        return self.holder is not None and self._table.holds(self.holder, block)

    def hold(self, number: int, ids: Sequence[int]) -> None:
        """Add blocks of the rank with this number that no event has named, unless it is dropped."""
        if self.number == number and self.holder is not None:
            self.evicted += self._table.store(self.holder, 0, ids)

    def drop(self) -> None:
        """Drop all blocks."""
        if self.holder is not None:
            self._table.close(self.holder)
            self.holder = None
