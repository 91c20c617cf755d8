"""What vLLM binds into a block's key apart from its tokens: items, LoRA, salt, lookahead.

The engine finds the items of a block by an index that it moves from block to block. If items touch
or contain each other, this index skips some of them, which changes the keys. So every step here
copies the engine's.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any, NamedTuple

from mmhash.arguments import check_int, check_text
from mmhash.engines import checks, engine
from mmhash.engines.vllm.releases import LATEST, RELEASES, Recipe, require
from mmhash.errors import InputTypeError, InputValueError, LimitError

# The most lookahead tokens of all blocks together: each token takes time and memory.
_MAX_AHEAD = 1 << 22

# Constants of the engine. In a pickle, later uses of a constant refer to the first.
_TAGS = {tag: tag for tag in ("mm", "lora", "cache_salt", "prompt_embeds")}

ExtraKeys = tuple[Any, ...] | None
"""What a block's key binds apart from its tokens and the previous block."""


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


class Lora(NamedTuple):
    """The adapter of a request. Block keys cover the path since 0.31."""

    name: str
    path: str


def extra_keys(
    tokens: Sequence[int],
    block_size: int,
    *,
    version: str = LATEST,
    items: Sequence[Span | engine.Span] = (),
    cache_salt: str | None = None,
    lora: Lora | None = None,
    lookahead: int = 0,
    hashed_after: Sequence[int] = (),
) -> list[ExtraKeys]:
    """Return what each whole block's key binds apart from its tokens (see `block_keys`)."""
    tokens = checks.token_array("tokens", tokens)
    recipe = RELEASES.recipe(version)
    block_size = check_int("block_size", block_size, 1, checks.MAX_TOKENS)
    lookahead = check_int("lookahead", lookahead, 0, checks.MAX_TOKENS)
    require(recipe.lookahead or not lookahead, "lookahead", "0.33.0", version)
    blocks = len(tokens) // block_size
    if blocks * lookahead > _MAX_AHEAD:
        raise LimitError(
            f"a lookahead of {lookahead} for {blocks} blocks hashes more than {_MAX_AHEAD} tokens"
        )
    resumed = _resumed_blocks(hashed_after, len(tokens), block_size, lookahead)
    spans = _check_items(items)
    if not spans and cache_salt is None and lora is None and not lookahead:
        return [None] * blocks  # most prompts
    stop = len(tokens) - block_size - lookahead + 1
    found = _items_of_blocks(
        spans, recipe, block_size, lookahead=lookahead, resumed=resumed, stop=stop
    )
    always = () if lora is None else (_lora_key(lora, recipe),)
    extras = _keys_of_items(found, always, recipe)
    if extras and cache_salt is not None:
        extras[0] = (*(extras[0] or ()), *_salt_keys(cache_salt, recipe)) or None
    if lookahead:
        ends = range(block_size, len(tokens), block_size)
        extras = [
            (extra, *tokens[end : end + lookahead])
            for extra, end in zip(extras, ends, strict=False)
        ]
    return extras


def event_extra_keys(extra: ExtraKeys, *, version: str = LATEST) -> ExtraKeys:
    """Return a block's extra keys as in KV events, without the tags and without a lookahead."""
    is_tagged = RELEASES.recipe(version).extra_keys == "tagged"
    if extra is None:
        return None
    if not isinstance(extra, tuple):
        raise InputTypeError(f"extra must be a tuple or None, not {type(extra).__name__}")
    if not is_tagged:
        return extra
    if not all(isinstance(key, tuple) and len(key) > 1 for key in extra):
        raise InputTypeError("extra must hold tuples, as extra_keys() returns them")
    return tuple(key[1:] if key[0] == "mm" else key[1] for key in extra)


def copied_text(name: str, text: Any) -> str:
    """Return a copy that is an object of its own, as in vLLM: pickles show shared objects."""
    return check_text(name, text).encode().decode()


def copied_extra_keys(extra: ExtraKeys, *, version: str) -> ExtraKeys:
    """Return a copy in which only the tags share objects, as in vLLM.

    A pickle shows which texts and bytes are one object, so equal extra keys could have different
    pickles.
    """
    is_tagged = RELEASES.recipe(version).extra_keys == "tagged"

    def copied(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            parts = list(map(copied, value))
            if is_tagged and parts and isinstance(parts[0], str):
                parts[0] = _TAGS.get(parts[0], parts[0])
            return type(value)(parts)
        if isinstance(value, str):
            return copied_text("extra", value)
        return bytes(bytearray(value)) if isinstance(value, bytes) else value

    copy: ExtraKeys = copied(extra)
    return copy


def _keys_of_items(
    found: Iterator[tuple[list[Span], range]], always: tuple[Any, ...], recipe: Recipe
) -> list[ExtraKeys]:
    """Return each block's extra keys: the common ones, then those of its items."""
    extras: list[ExtraKeys] = []
    for items, starts in found:
        if not items:
            extras += repeat(always or None, len(starts))
        elif recipe.extra_keys == "tagged" and len(items) == 1 and not always:
            # The usual case. A call per block would be much slower.
            identifier, offset, _ = items[0]
            extras += [(("mm", identifier, offset - start),) for start in starts]
        else:
            extras += [
                (*always, *[_item_key(item, start, recipe) for item in items]) for start in starts
            ]
    return extras


def _item_key(item: Span, start: int, recipe: Recipe) -> Any:
    match recipe.extra_keys:
        case "bare":
            return item.identifier
        case "placed":
            return item.identifier, item.offset - start
        case "tagged":
            return "mm", item.identifier, item.offset - start


def _lora_key(lora: Any, recipe: Recipe) -> Any:
    if not isinstance(lora, Lora):
        raise InputTypeError(f"lora must be a Lora or None, not {type(lora).__name__}")
    name, path = copied_text("lora's name", lora.name), copied_text("lora's path", lora.path)
    return ("lora", name, path) if recipe.extra_keys == "tagged" else name


def _salt_keys(cache_salt: str, recipe: Recipe) -> tuple[Any, ...]:
    salt = copied_text("cache_salt", cache_salt)
    if not salt:
        return ()
    return (("cache_salt", salt),) if recipe.extra_keys == "tagged" else (salt,)


def _check_items(items: Any) -> list[Span]:
    """Return the items with plain values. Raise unless they are sorted by offset."""
    checked = []
    for item in checks.listed("items", items):
        if isinstance(item, engine.Span):
            item = Span(item.whole_key().hex(), item.start, item.end - item.start)  # noqa: PLW2901
        if not isinstance(item, Span):
            raise InputTypeError(f"items must hold Spans, not {type(item).__name__}")
        checked.append(
            Span(
                copied_text("identifier", item.identifier),
                check_int("an item's offset", item.offset, 0, checks.MAX_TOKENS),
                check_int("an item's length", item.length, 1, checks.MAX_TOKENS),
            )
        )
    if any(later.offset < earlier.offset for earlier, later in pairwise(checked)):
        raise InputValueError("items must be in the order of their offsets, as vLLM sorts them")
    return checked


def _items_of_blocks(
    items: Sequence[Span],
    recipe: Recipe,
    block_size: int,
    *,
    lookahead: int,
    resumed: set[int],
    stop: int,
) -> Iterator[tuple[list[Span], range]]:
    """Yield runs of blocks, as ranges of starts, with the items that the engine finds in each."""
    index = start = 0
    while start < stop:
        end = start + block_size
        if start in resumed:
            index = _resumed_index(items, start, recipe)
        # Find equal blocks in runs, because one block at a time takes far longer.
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
            if item.end > end:  # the next block must find this item again
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


def _resumed_blocks(
    hashed_after: Sequence[int], total: int, block_size: int, lookahead: int
) -> set[int]:
    """Return the starts of the blocks at which the engine resumed hashing."""
    given = checks.listed("hashed_after", hashed_after)
    if not given:  # the usual case
        return set()
    hashed_after = [check_int("hashed_after", number, 0) for number in given]
    if any(later < earlier for earlier, later in pairwise([*hashed_after, total])):
        raise InputValueError(f"hashed_after must rise to at most {total}, the number of tokens")
    hashed = [max(0, number - lookahead) // block_size for number in hashed_after]
    return {blocks * block_size for blocks in hashed if blocks}
