"""The items that vLLM finds in each block of tokens, by the steps of each release."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from mmhash.arguments import check_int
from mmhash.engines import checks, engine
from mmhash.engines.vllm.block_hash import copied_text
from mmhash.engines.vllm.releases import Recipe
from mmhash.errors import InputTypeError, InputValueError


class Span(NamedTuple):
    """The placeholders of an item among the tokens, and vLLM's identifier of the item.

    `identifier` is the item's mm hash or the uuid sent by the client.
    """

    identifier: str
    offset: int
    length: int

    @property
    def end(self) -> int:
        """The index after the last placeholder."""
        return self.offset + self.length


def items_of_blocks(
    items: Sequence[Span],
    recipe: Recipe,
    block_size: int,
    *,
    lookahead: int,
    resumed: set[int],
    stop: int,
) -> Iterator[tuple[list[Span], range]]:
    """Yield runs of blocks, as ranges of starts, with the items that the engine finds in each run.

    The engine moves an index through the items from block to block. If items touch or contain each
    other, the items it skips change the keys, so every step here copies the engine's.
    """
    index = start = 0
    while start < stop:
        end = start + block_size
        if start in resumed:
            index = _resumed_index(items, start, recipe)
        # Equal blocks are found in runs: one at a time takes far longer.
        is_run = not (lookahead or resumed)
        blocks = _count_equal(items, index, start, block_size, recipe) if is_run else 1
        found, index = _items_of_block(items, index, start, end + lookahead, recipe)
        after = stop if blocks is None else start + blocks * block_size
        yield found, range(start, min(after, stop), block_size)
        start = after
        if lookahead:
            index = _rewound(items, index, end)


def _count_equal(
    items: Sequence[Span], index: int, start: int, block_size: int, recipe: Recipe
) -> int | None:
    """Return how many blocks from `start` on have no item, or only the surrounding item.

    Counts at least one block. None means all remaining blocks.
    """
    if index >= len(items) or _is_past(items[-1], start, recipe):
        return None
    item = items[index]
    if item.offset >= start + block_size:
        return (item.offset - start) // block_size
    limit = min(item.end - block_size, items[-1].end)
    return max(1, -((start - limit) // block_size))


def _items_of_block(
    items: Sequence[Span], index: int, start: int, end: int, recipe: Recipe
) -> tuple[list[Span], int]:
    """Return the items between `start` and `end`, counting from the index, and the next index."""
    found: list[Span] = []
    if not items or _is_past(items[-1], start, recipe):
        return found, index
    while index < len(items) and items[index].offset < end:
        item = items[index]
        if not _is_past(item, start, recipe):
            found.append(item)
            if item.end > end:  # the next block will find this item again
                break
        index += 1
    return found, index


def _is_past(item: Span, start: int, recipe: Recipe) -> bool:
    return item.end < start if recipe.past_end else item.end <= start


def _rewound(items: Sequence[Span], index: int, end: int) -> int:
    """Return the index before the items that only the lookahead passed: they end after `end`."""
    while index > 0 and items[index - 1].end > end:
        index -= 1
    return index


def _resumed_index(items: Sequence[Span], start: int, recipe: Recipe) -> int:
    if recipe.last_item_only:
        return len(items) - 1
    if not items or items[-1].end <= start:
        return 0
    return bisect_left(items, start + 1, key=lambda item: item.end)


def resumed_blocks(
    hashed_after: Sequence[int], total: int, block_size: int, lookahead: int
) -> set[int]:
    """Return the starts of the blocks at which the engine resumed hashing."""
    hashed_after = [
        check_int("hashed_after", number, 0)
        for number in checks.listed("hashed_after", hashed_after)
    ]
    if any(later < earlier for earlier, later in pairwise([*hashed_after, total])):
        raise InputValueError(f"hashed_after must rise, and end at or below the {total} tokens")
    hashed = [max(0, number - lookahead) // block_size for number in hashed_after]
    return {blocks * block_size for blocks in hashed if blocks}


def check_items(items: Any) -> list[Span]:
    """Return the items with plain values. Raise unless they are sorted by offset."""
    checked = []
    for item in checks.listed("items", items):
        if isinstance(item, engine.Span):
            item = Span(item.whole_key().hex(), item.start, item.end - item.start)  # noqa: PLW2901
        if not isinstance(item, Span):
            raise InputTypeError(f"items must hold Spans, not {type(item).__name__}")
        identifier, offset, length = checks.listed("an item", item)
        checked.append(
            Span(
                copied_text("identifier", identifier),
                check_int("an item's offset", offset, 0, checks.MAX_TOKENS),
                check_int("an item's length", length, 1, checks.MAX_TOKENS),
            )
        )
    if any(later.offset < earlier.offset for earlier, later in pairwise(checked)):
        raise InputValueError("items must be in the order of their offsets, as vLLM sorts them")
    return checked
