"""The caches of a worker: the blocks of each data-parallel rank."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from mmhash.errors import LimitError
from mmhash.kvindex.events import BlocksRemoved, BlocksStored, CacheCleared
from mmhash.kvindex.table import BlockTable

logger = logging.getLogger(__name__)


class Match(Struct):  # much faster to make than a NamedTuple, and each match makes one per worker
    """How many leading tokens of a prompt a worker has cached, and the rank that has them.

    `ranks` lists the tokens of each rank.
    """

    tokens: int
    rank: int
    ranks: dict[int, int]


class Rank:
    """The cache of one rank of a worker."""

    def __init__(self, table: BlockTable, ranks: "Ranks") -> None:
        self._table = table
        self._ranks = ranks
        self.holder = table.open()

    @property
    def block_size(self) -> int:
        """The tokens of a block of the lists that match, or 0 without blocks."""
        return self._table.block_size(self.holder)

    def apply(self, events: Sequence[BlocksStored | BlocksRemoved | CacheCleared]) -> None:
        """Apply the events of one batch."""
        kept = next(
            (n for n, one in enumerate(reversed(events)) if type(one) is CacheCleared), None
        )
        if kept is not None:  # once: a batch may have 65 536 of them
            self._table.clear(self.holder)
            events = events[len(events) - kept :]
        for event in events:
            assert not isinstance(event, CacheCleared)  # noqa: S101  (for the type checker)
            group, ids = event.group or 0, event.ids
            if isinstance(event, BlocksStored):
                self._ranks.evicted += self._table.store(self.holder, group, ids, event.layout)
            else:
                self._table.remove(self.holder, group, ids)


class Ranks:
    """The ranks of one worker. Each is created when it first publishes, and again after a drop."""

    def __init__(self, url: str, most: int, table: BlockTable) -> None:
        self._url = url
        self._most = most
        self._table = table
        self._has_limit_warning = False
        self.by_number: dict[int, Rank] = {}
        """The ranks. The dict is replaced as a whole, because matches read it in other threads."""
        self.evicted = 0

    def __iter__(self) -> Iterator[Rank]:
        return iter(self.by_number.values())

    def get(self, number: int) -> Rank:
        """Return the rank with this number, creating it if needed."""
        rank = self.by_number.get(number)
        if rank is None:
            if len(self.by_number) >= self._most:
                raise LimitError(f"worker {self._url} may have only {self._most} ranks")
            rank = Rank(self._table, self)
            self.by_number = {**self.by_number, number: rank}
        return rank

    def hold(self, number: int, ids: Sequence[int]) -> None:
        """Add blocks of a rank that has published others; it may have been dropped since."""
        rank = self.by_number.get(number)
        if rank is not None:
            self.evicted += self._table.store(rank.holder, 0, ids)

    def warn(self, error: LimitError) -> None:
        """Log the first limit that a batch of the worker exceeds."""
        if not self._has_limit_warning:
            self._has_limit_warning = True
            logger.warning("worker %s: KV events are not applied: %s", self._url, error)

    def drop(self, numbers: AbstractSet[int]) -> None:
        """Drop these ranks and their blocks: a restarted worker may have other ranks."""
        before = self.by_number
        self.by_number = {number: rank for number, rank in before.items() if number not in numbers}
        for number in before.keys() & numbers:
            self._table.close(before[number].holder)

    def close(self) -> None:
        """Drop all ranks."""
        self.drop(self.by_number.keys())

    def count(self) -> int:
        """Return the number of blocks."""
        return sum(self._table.count(rank.holder) for rank in self)

    def match(
        self, runs: Mapping[int, int], block_size: int | None, before: Mapping[int, Rank]
    ) -> Match:
        """Return the tokens of the rank that holds most of a prompt, and the tokens of each rank.

        `before` holds the ranks from before the lookup of the blocks. A rank that was dropped or
        made since then does not count: its holder may have belonged to another rank.
        """
        best = Match(0, 0, {})
        for number, rank in self.by_number.items():
            blocks = runs.get(rank.holder)
            if blocks is None or before.get(number) is not rank:
                continue
            size = block_size or rank.block_size
            best.ranks[number] = tokens = blocks * size
            if tokens > best.tokens:
                best.tokens, best.rank = tokens, number
        return best
