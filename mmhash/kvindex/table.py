"""A table of blocks: bit masks of their holders by block id. No I/O, no clock.

A holder is the cache of one rank of a worker, with all its tiers. With a dict of masks, a match
takes one lookup per block, however many holders there are (bench/kvindex.py). A binary search would
be faster still, and wrong: an engine may evict a block from the middle.
"""

import operator
from collections.abc import Container, Iterable, Sequence
from functools import reduce
from itertools import accumulate, islice, repeat
from math import gcd, lcm
from operator import and_, or_
from typing import NamedTuple

from mmhash.errors import InputTypeError, LimitError

MAX_HOLDERS = 1024
MAX_GROUPS = 64
MAX_GROUPS_OF_HOLDER = 16  # a hostile holder must leave the other holders their share

_MASK_64 = (1 << 64) - 1
_EVICTED_PART = 64

# How many blocks a match looks up before other threads get the GIL.
_PIECE = 4096


def block_id(one: int | bytes) -> int:
    """Return a block's id as an unsigned 64-bit number: like vLLM, take the low bits of bytes."""
    if isinstance(one, bytes):
        return int.from_bytes(one[-8:], "big")
    try:
        return operator.index(one) & _MASK_64
    except TypeError:
        kind = type(one).__name__
        raise InputTypeError(f"a block's id must be an int or bytes, not {kind}") from None


def block_ids(blocks: Iterable[int | bytes]) -> list[int]:
    """Return block ids as unsigned numbers: events and plans also have signed numbers and bytes."""
    ids = list(blocks)
    try:
        if ids and min(ids) >= 0:  # type: ignore[operator]
            return ids  # type: ignore[return-value]
        # The smallest id is negative, so some are signed. Masking all ids is faster than block_id.
        return list(map(and_, ids, repeat(_MASK_64)))
    except (TypeError, ValueError, OverflowError):  # the last two come from numpy
        return [block_id(one) for one in ids]


class Layout(NamedTuple):
    """How a group of a holder's layers stores a prompt."""

    size: int = 1
    """The tokens per block."""
    window: int | None = None
    """How many blocks before the end of a match the group needs; None for all."""
    is_state: bool = False
    """True if a block is the state after its last token, and so suffices by itself."""

    def merge(self, other: "Layout") -> "Layout":
        """Combine what two events say: an event may omit the window or describe only a part."""
        window = self.window if other.window is None else other.window
        return Layout(max(self.size, other.size), window, self.is_state or other.is_state)


_PLAIN = Layout()


class _Needs(NamedTuple):
    """What a match needs in the groups of a holder that does not need every block of a match."""

    alignment: int
    """The length of a match is a multiple of this many blocks."""
    groups: dict[int, tuple[int, int | None]]
    """For each group, how many blocks of a match make up a block of the group, and the window."""


class _Group:
    """The blocks of one group of layers."""

    def __init__(self, max_blocks: int) -> None:
        self.masks: dict[int, int] = {}
        # The copies of each holder's blocks, the least recently stored first. Engines publish every
        # copy: one in each tier, and two if prompts computed at the same time store the same block.
        self.orders: dict[int, dict[int, int]] = {}
        self._max_blocks = max_blocks

    def store(self, holder: int, ids: Iterable[int]) -> int:
        """Add blocks of a holder; return how many older blocks were evicted for them."""
        masks, bit = self.masks, 1 << holder
        order = self.orders.setdefault(holder, {})
        get = masks.get
        # Updating the dicts from pairs would be slower, and so would a call per set of holders.
        for one in ids:
            mask = get(one, 0)
            if mask & bit:
                order[one] = order.pop(one) + 1
            else:
                masks[one] = mask | bit
                order[one] = 1
        excess = len(order) - self._max_blocks
        if excess <= 0:
            return 0
        # Evict many at once: finding a dict's first key means skipping the gaps of all deleted
        # keys.
        oldest = list(islice(order, excess + self._max_blocks // _EVICTED_PART))
        self._forget(holder, oldest)
        return len(oldest)

    def remove(self, holder: int, ids: Iterable[int]) -> None:
        """Remove one copy of each block that the holder has."""
        order = self.orders.get(holder, {})
        last = []
        for one in ids:
            copies = order.get(one, 0)
            if copies > 1:
                order[one] = copies - 1
            elif copies:
                last.append(one)
        self._forget(holder, last)

    def clear(self, holder: int) -> None:
        """Remove all blocks of a holder."""
        self._forget(holder, list(self.orders.get(holder, ())))
        self.orders.pop(holder, None)

    def _forget(self, holder: int, ids: Iterable[int]) -> None:
        """Remove blocks that the holder has, with all copies."""
        masks, bit = self.masks, 1 << holder
        order = self.orders.get(holder, {})
        for one in ids:
            if order.pop(one, 0):
                mask = masks[one]
                if mask == bit:
                    del masks[one]
                else:
                    masks[one] = mask ^ bit


class BlockTable:
    """The blocks of all holders.

    One thread changes the table. Other threads may call `match`, `count` and `blocks` at any time
    without a lock: they read dicts one key at a time, and tuples and dicts that are replaced as a
    whole.
    """

    def __init__(self, max_blocks: int) -> None:
        """Make a table that keeps at most `max_blocks` of each holder and group."""
        self._max_blocks = max_blocks
        self._groups: dict[int, _Group] = {}
        # For each group, the mask of the holders that need each block of a match in it.
        self._users: dict[int, int] = {}
        self._layouts: dict[int, dict[int, Layout]] = {}
        self._needs: dict[int, _Needs] = {}
        self._open = 0  # the mask of the holders that matches include

    def open(self) -> int:
        """Return a new holder: the lowest free number."""
        holder = (~self._open & (self._open + 1)).bit_length() - 1
        if holder >= MAX_HOLDERS:
            raise LimitError(f"an index can hold at most {MAX_HOLDERS} ranks of workers")
        self._open |= 1 << holder
        return holder

    def close(self, holder: int) -> None:
        """Remove a holder and its blocks."""
        self.clear(holder)
        self._open &= ~(1 << holder)

    def store(self, holder: int, group: int, ids: Iterable[int], layout: Layout = _PLAIN) -> int:
        """Add blocks; return how many of the least recently stored blocks were evicted for them.

        Without blocks, only note the layout: vLLM also publishes that a group has kept no blocks.
        """
        known = self._layouts.get(holder, {}).get(group)
        if known is None:
            self._add_group(holder, group)
            self._use_group(holder, group, layout)
        elif known is not layout and known.merge(layout) != known:
            self._use_group(holder, group, known.merge(layout))
        return self._groups[group].store(holder, ids)

    def remove(self, holder: int, group: int, ids: Iterable[int]) -> None:
        """Remove one copy of each block; ignore blocks that the holder does not have."""
        if group in self._groups:
            self._groups[group].remove(holder, ids)

    def clear(self, holder: int) -> None:
        """Remove all blocks of a holder, and the layouts of its groups."""
        bit = 1 << holder
        is_open = self._open & bit
        # No match may see a holder with only some of its blocks removed.
        self._open &= ~bit
        for group in self._groups.values():
            group.clear(holder)
        self._users = {number: users & ~bit for number, users in self._users.items()}
        self._layouts = {one: groups for one, groups in self._layouts.items() if one != holder}
        self._needs = {one: needs for one, needs in self._needs.items() if one != holder}
        self._open |= is_open

    def block_size(self, holder: int) -> int:
        """Return how many tokens a block of a list for `match` must have, or 0 without groups.

        A larger block has the id of the last small block that it covers.
        """
        return gcd(*(layout.size for layout in self._layouts.get(holder, {}).values()))

    def count(self, holder: int) -> int:
        """Return the number of a holder's blocks, over all groups."""
        return sum(len(group.orders.get(holder, ())) for group in list(self._groups.values()))

    def holds(self, holder: int, block: int) -> bool:
        """Return True if any group of a holder has a block."""
        return any(block in group.orders.get(holder, ()) for group in list(self._groups.values()))

    def blocks(self) -> int:
        """Return the number of different blocks; each group counts a block once."""
        return sum(len(group.masks) for group in list(self._groups.values()))

    def match(self, ids: Sequence[int | bytes]) -> dict[int, int]:
        """Return how many leading blocks each holder can use. Holders without any are missing.

        A block counts if all groups of the holder have it. A group with a window needs only the
        last blocks of the match, and a group with larger blocks needs fewer (docs/routing.md). A
        long list is looked up in pieces, until no holder has a whole piece. Other threads get the
        GIL between pieces.
        """
        if not self._users:
            return {}
        runs: dict[int, int] = {}
        seen: list[int] = []
        growing = self._holders()
        for start in range(0, len(ids), _PIECE):
            piece = block_ids(ids[start : start + _PIECE])
            seen += piece
            found = _runs(self._held(piece), growing)
            growing = 0
            for holder, length in found.items():
                runs[holder] = start + length
                if length == len(piece):
                    growing |= 1 << holder
            if not growing:
                break
        return self._fit_groups(runs, seen)

    def _holders(self) -> int:
        """Return the mask of the holders that use any group."""
        return reduce(or_, (1 << holder for holder in self._layouts), 0) & self._open

    def _held(self, ids: Sequence[int]) -> list[int]:
        """Return for each block the mask of the holders that have it in all their groups."""
        result: list[int] | None = None
        is_open = self._open
        for number, users in self._users.items():
            group = self._groups.get(number)
            column = list(map(group.masks.get, ids, repeat(0))) if group else [0] * len(ids)
            if is_open & ~users:
                # A holder needs no block of a group that it does not use.
                column = list(map(or_, column, repeat(~users)))
            result = column if result is None else list(map(and_, result, column))
        return result or []

    def _fit_groups(self, runs: dict[int, int], ids: Sequence[int]) -> dict[int, int]:
        """Return the runs above 0, shortened to the longest that suits all groups of a holder."""
        for holder, (alignment, groups) in self._needs.items():
            length, last = runs.get(holder, 0), -1
            while length != last:
                last = length
                for number, (stride, window) in groups.items():
                    length -= length % alignment
                    group = self._groups.get(number)
                    own: Container[int] = group.orders.get(holder, ()) if group else ()
                    length = _fit(_Column(own, ids), length, stride, window, alignment)
            runs[holder] = length
        return {holder: length for holder, length in runs.items() if length}

    def _use_group(self, holder: int, group: int, layout: Layout) -> None:
        """Note the layout of a holder's group, and update what its groups need."""
        layouts = {**self._layouts.get(holder, {}), group: layout}
        self._layouts = {**self._layouts, holder: layouts}
        size, bit = self.block_size(holder), 1 << holder
        strides = {one: each.size // size for one, each in layouts.items()}
        needs = {
            one: (strides[one], each.window)
            for one, each in layouts.items()
            if each.window is not None or strides[one] > 1
        }
        self._users = {
            one: users & ~bit if one in needs or one not in layouts else users | bit
            for one, users in self._users.items()
        }
        # As in vLLM, a state may end within a block, unless a window needs whole blocks.
        is_fine = any(each.is_state and strides[one] > 1 for one, each in layouts.items()) and all(
            each.window is None or each.is_state or strides[one] == 1
            for one, each in layouts.items()
        )
        others = {one: each for one, each in self._needs.items() if one != holder}
        alignment = 1 if is_fine else lcm(*strides.values())
        self._needs = {**others, holder: _Needs(alignment, needs)} if needs else others

    def _add_group(self, holder: int, group: int) -> None:
        """Let a holder use another group, within the limits. `clear` ends the use."""
        if len(self._layouts.get(holder, ())) >= MAX_GROUPS_OF_HOLDER:
            raise LimitError(f"a rank can have at most {MAX_GROUPS_OF_HOLDER} groups")
        if group in self._groups:
            return
        if len(self._groups) >= MAX_GROUPS:
            used = frozenset[int]().union(*self._layouts.values())
            self._groups = {one: each for one, each in self._groups.items() if one in used}
            self._users = {one: users for one, users in self._users.items() if one in used}
        if len(self._groups) >= MAX_GROUPS:
            raise LimitError(f"an index can have at most {MAX_GROUPS} groups")
        self._groups = {**self._groups, group: _Group(self._max_blocks)}
        self._users = {group: 0, **self._users}


def _runs(masks: Sequence[int], holders: int) -> dict[int, int]:
    """Return how many leading masks have each holder's bit. Holders without any are missing."""
    runs: dict[int, int] = {}
    # Combining the masks in the loop below would take longer.
    left = list(accumulate(masks, and_, initial=holders))
    if left[-1] != holders:
        for length, mask in enumerate(left, -1):
            if mask != holders:
                gone = holders & ~mask if length else 0
                while gone:
                    bit = gone & -gone
                    runs[bit.bit_length() - 1] = length
                    gone ^= bit
                holders = mask
                if not holders:
                    return runs
    length = len(masks)
    while holders:
        bit = holders & -holders
        runs[bit.bit_length() - 1] = length
        holders ^= bit
    return runs


class _Column(NamedTuple):
    """The blocks of a list that a group of a holder has."""

    own: Container[int]
    ids: Sequence[int]

    def has(self, end: int) -> bool:
        """Return True if the group has the block that ends a match of this length."""
        return self.ids[end - 1] in self.own


def _fit(column: _Column, length: int, stride: int, window: int | None, alignment: int) -> int:
    """Return the longest match, up to an aligned length, that a group can serve."""
    if window is None:
        end = 0
        while end + stride <= length and column.has(end + stride):
            end += stride
        parts = range(min(length, end + stride - 1), end, -1) if alignment < stride else ()
        return next(filter(column.has, parts), end)
    if alignment < stride:  # a state, which may end within a block
        return next(filter(column.has, range(length, 0, -1)), 0)
    start = end = length
    while start > max(0, end - window * stride):
        if column.has(start):
            start -= stride
        else:
            start -= stride
            start = end = start - start % alignment
    return end
