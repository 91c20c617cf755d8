"""What vLLM binds into a block's key apart from its tokens: items, LoRA, salt, lookahead."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from mmhash.arguments import check_int
from mmhash.engines import checks, engine
from mmhash.engines.vllm.block_hash import copied_text
from mmhash.engines.vllm.block_items import Span, check_items, items_of_blocks, resumed_blocks
from mmhash.engines.vllm.releases import LATEST, RELEASES, Recipe, require
from mmhash.errors import InputTypeError, LimitError

# The most tokens that all blocks together may look ahead to: each takes time and memory.
_MAX_AHEAD = 1 << 22

ExtraKeys = tuple[Any, ...] | None
"""What a block's key binds apart from its tokens and the previous block."""


# Constants of the engine. In a pickle, later uses of a constant refer to the first.
_TAGS = {tag: tag for tag in ("mm", "lora", "cache_salt", "prompt_embeds")}


class Lora(NamedTuple):
    """The adapter of a request. The path counts since 0.31."""

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
    tokens = checks.token_list("tokens", tokens)
    recipe = RELEASES.recipe(version)
    block_size = check_int("block_size", block_size, 1, checks.MAX_TOKENS)
    lookahead = check_int("lookahead", lookahead, 0, checks.MAX_TOKENS)
    require(recipe.lookahead or not lookahead, "lookahead", "0.33.0", version)
    blocks = len(tokens) // block_size
    if blocks * lookahead > _MAX_AHEAD:
        raise LimitError(
            f"a lookahead of {lookahead} for {blocks} blocks hashes more than {_MAX_AHEAD} tokens"
        )
    resumed = resumed_blocks(hashed_after, len(tokens), block_size, lookahead)
    stop = len(tokens) - block_size - lookahead + 1
    found = items_of_blocks(
        check_items(items), recipe, block_size, lookahead=lookahead, resumed=resumed, stop=stop
    )
    always = () if lora is None else (_lora_key(_check_lora(lora), recipe),)
    salt = _salt_keys(cache_salt, recipe)
    extras = _item_keys(found, always, recipe)
    if extras and salt:
        extras[0] = (*(extras[0] or ()), *salt)
    if lookahead:
        ends = range(block_size, len(tokens), block_size)
        extras = [
            (extra, *tokens[end : end + lookahead])
            for extra, end in zip(extras, ends, strict=False)
        ]
    return extras


def _item_keys(
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


def _check_lora(lora: Any) -> Lora:
    if not isinstance(lora, Lora):
        raise InputTypeError(f"lora must be a Lora or None, not {type(lora).__name__}")
    return Lora(copied_text("lora's name", lora.name), copied_text("lora's path", lora.path))


def _lora_key(lora: Lora, recipe: Recipe) -> Any:
    return ("lora", lora.name, lora.path) if recipe.extra_keys == "tagged" else lora.name


def _item_key(item: Span, start: int, recipe: Recipe) -> Any:
    match recipe.extra_keys:
        case "bare":
            return item.identifier
        case "placed":
            return item.identifier, item.offset - start
        case "tagged":
            return "mm", item.identifier, item.offset - start


def _salt_keys(cache_salt: str | None, recipe: Recipe) -> tuple[Any, ...]:
    salt = "" if cache_salt is None else copied_text("cache_salt", cache_salt)
    if not salt:
        return ()
    return (("cache_salt", salt),) if recipe.extra_keys == "tagged" else (salt,)


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
