"""The keys of vLLM's prefix cache: a chain over whole blocks of tokens and the items in them."""

import hashlib
import pickle
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, repeat
from struct import Struct
from typing import Any, NamedTuple

from xxhash import xxh3_128_digest

from mmhash.engines import cbor, checks, engine
from mmhash.engines.vllm.releases import LATEST, RELEASES, Recipe, require
from mmhash.errors import InputTypeError, InputValueError

ExtraKeys = tuple[Any, ...] | None
"""The values that a block's key binds beside its tokens and the block before it."""

DEFAULT_ALGORITHM = "sha256"
"""The engine's own default of `--prefix-caching-hash-algo`: SHA-256 of pickles."""

_DEFAULT_SEED = "vllm-none-hash"
_MASK_64 = 2**64 - 1


class Span(NamedTuple):
    """The placeholders of an item among the tokens, and the item's identifier in vLLM.

    `identifier` is the item's mm hash or the uuid that the client sent.
    """

    identifier: str
    offset: int
    length: int

    @property
    def end(self) -> int:
        """The index after the last placeholder."""
        return self.offset + self.length


class Lora(NamedTuple):
    """The adapter of a request; its path counts since 0.31."""

    name: str
    path: str


class _Algorithm(NamedTuple):
    """The functions that serialize a value, hash the bytes, and prepare blocks of tokens."""

    dumps: Callable[[Any], bytes]
    digest: Callable[[bytes], bytes]
    arrays: Callable[[Sequence[int], int], Sequence[Any]]
    cryptographic: bool

    def __call__(self, value: Any) -> bytes:
        return self.digest(self.dumps(value))


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _tuples(tokens: Sequence[int], length: int) -> list[tuple[int, ...]]:
    whole = tuple(tokens)  # slices of a list take twice as long
    stops = range(length, len(whole) + 1, length)
    return [whole[stop - length : stop] for stop in stops]


def _pickle(value: Any) -> bytes:
    """Return a pickle as the engine writes it; none is ever read."""
    return pickle.dumps(value, 5)


_ALGORITHMS = {
    "sha256": _Algorithm(_pickle, _sha256, _tuples, True),
    "sha256_cbor": _Algorithm(cbor.dumps, _sha256, cbor.int_arrays, True),
    "xxhash": _Algorithm(_pickle, xxh3_128_digest, _tuples, False),
    "xxhash_cbor": _Algorithm(cbor.dumps, xxh3_128_digest, cbor.int_arrays, False),
}


def block_keys(
    tokens: Sequence[int],
    block_size: int,
    *,
    version: str = LATEST,
    items: Sequence[Span | engine.Span] = (),
    cache_salt: str | None = None,
    lora: Lora | None = None,
    algorithm: str = DEFAULT_ALGORITHM,
    seed: str | None = None,
    lookahead: int = 0,
    hashed_after: Sequence[int] = (),
) -> list[bytes]:
    """Return the key of each whole block, each bound to those before it.

    `items` are in the order of their offsets; one may reach past the tokens, which may be only the
    beginning of a prompt. `algorithm` is the engine's `--prefix-caching-hash-algo`, `seed` its
    PYTHONHASHSEED. `lookahead` is how many of the tokens after a block count to it. vLLM hashes a
    prompt in one step: only if it did not, `hashed_after` has the number of tokens at each earlier
    step, because until 0.30 that changes the items found in later blocks.
    """
    hash_ = _algorithm(algorithm)
    parent = none_hash(version=version, seed=seed, algorithm=algorithm)
    tokens = _check_tokens(tokens)
    block_size = checks.whole("block_size", block_size, 1, checks.MAX_TOKENS)
    extras, alike = _extra_keys(
        tokens, block_size, version, items, cache_salt, lora, lookahead, hashed_after
    )
    arrays = hash_.arrays(tokens, block_size)
    keys: list[bytes] = []
    for run in alike if hash_.dumps is _pickle else ():
        first, last = run.start, run.stop
        if arrays[first:last].count(arrays[first]) == len(run):
            keys += _chain(hash_, parent, arrays[len(keys) : first], extras[len(keys) : first])
            keys += _chain_alike(hash_, keys[-1], arrays[first], extras[first:last])
            parent = keys[-1]
    keys += _chain(hash_, parent, arrays[len(keys) :], extras[len(keys) :])
    return keys


def _chain(
    hash_: _Algorithm, parent: bytes, arrays: Sequence[Any], extras: Sequence[ExtraKeys]
) -> list[bytes]:
    """Return the keys of blocks, the first of which comes after `parent`."""
    keys = []
    dumps, digest = hash_.dumps, hash_.digest  # 0.2 µs less for each block
    for array, extra in zip(arrays, extras, strict=False):
        parent = digest(dumps((parent, array, extra)))
        keys.append(parent)
    return keys


def _chain_alike(
    hash_: _Algorithm, parent: bytes, array: Any, extras: Sequence[Any]
) -> list[bytes]:
    """Return the keys of blocks in which one token repeats, and that begin after their item does.

    Their pickles differ in the parent and in the item's distance, a negative int of 4 bytes. One
    pickle for all takes 0.7 µs for a block instead of 1.2 µs.
    """
    pickled = hash_.dumps((parent, array, extras[0]))
    before, _, after = pickled.partition(parent)
    between, _, end = after.rpartition(_int32(extras[0][0][2]))
    digest = hash_.digest
    keys = []
    for ((_, _, distance),) in extras:
        parent = digest(b"".join((before, parent, between, _int32(distance), end)))
        keys.append(parent)
    return keys


_int32 = Struct("<i").pack


def group_keys(
    block_keys: Sequence[bytes], block_size: int, group_size: int, *, version: str = LATEST
) -> list[bytes]:
    """Return the keys of a KV-cache group with blocks of `group_size` tokens.

    A model with several groups hashes blocks of one size, which divides those of all groups: the
    greatest such number, or the engine's `prefix_match_unit`. The key of a larger block is that
    of the last small block in it. The engine's cache appends the group's number, in 4 bytes.
    """
    if not RELEASES.recipe(version).groups:
        raise InputValueError(f"keys of KV-cache groups are known from vllm 0.29, not of {version}")
    block_size = checks.whole("block_size", block_size, 1, checks.MAX_TOKENS)
    group_size = checks.whole("group_size", group_size, 1, checks.MAX_TOKENS)
    if group_size % block_size:
        raise InputValueError(f"group_size is a multiple of {block_size}, not {group_size}")
    keys = [checks.content("a block key", key) for key in checks.listed("block_keys", block_keys)]
    step = group_size // block_size
    return [bytes(key) for key in keys[step - 1 :: step]]


def block_key(
    tokens: Sequence[int],
    *,
    parent: bytes = b"",
    extra: ExtraKeys = None,
    version: str = LATEST,
    algorithm: str = DEFAULT_ALGORITHM,
    seed: str | None = None,
) -> bytes:
    """Return the key of one block after `parent`; an empty parent is the root."""
    parent = checks.content("parent", parent)
    if extra is not None and not issubclass(type(extra), tuple):
        raise InputTypeError(f"extra is a tuple or None, not {type(extra).__name__}")
    extra = checks.plain("extra", extra)
    cbor.dumps(extra)  # refuses objects that are not plain: a pickle would take all
    parent = parent or none_hash(version=version, seed=seed, algorithm=algorithm)
    return _algorithm(algorithm)((parent, tuple(_check_tokens(tokens)), extra))


def none_hash(
    *, version: str = LATEST, seed: str | None = None, algorithm: str = DEFAULT_ALGORITHM
) -> bytes:
    """Return the root before the first block; `seed` is the engine's PYTHONHASHSEED."""
    recipe = RELEASES.recipe(version)
    hash_ = _algorithm(algorithm)
    if seed is None:
        if not (recipe.default_root and hash_.cryptographic):
            raise InputValueError(
                f"without PYTHONHASHSEED the root of {algorithm} in vllm {version} is random in"
                " each process: set it there, and give it here as seed"
            )
        seed = _DEFAULT_SEED
    return hash_(_copied("seed", seed))


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
    """Return the values that each whole block's key binds beside its tokens; see `block_keys`."""
    extras, _ = _extra_keys(
        _check_tokens(tokens),
        block_size,
        version,
        items,
        cache_salt,
        lora,
        lookahead,
        hashed_after,
    )
    return extras


def _extra_keys(  # noqa: PLR0917  (the public functions name them)
    tokens: list[int],
    block_size: int,
    version: str,
    items: Sequence[Span | engine.Span],
    cache_salt: str | None,
    lora: Lora | None,
    lookahead: int,
    hashed_after: Sequence[int],
) -> tuple[list[ExtraKeys], list[range]]:
    """Return the extra keys of each block, and the runs of blocks that `_item_keys` returns."""
    recipe = RELEASES.recipe(version)
    block_size = checks.whole("block_size", block_size, 1, checks.MAX_TOKENS)
    lookahead = checks.whole("lookahead", lookahead, 0, checks.MAX_TOKENS)
    require(recipe.lookahead or not lookahead, "lookahead", "0.33.0", version)
    resumed = _resumed_blocks(hashed_after, len(tokens), block_size, lookahead)
    stop = len(tokens) - block_size - lookahead + 1
    found = _items_of_blocks(_check_items(items), recipe, block_size, lookahead, resumed, stop)
    always = () if lora is None else (_lora_key(_check_lora(lora), recipe),)
    salt = _salt_keys(cache_salt, recipe)
    extras, alike = _item_keys(found, always, recipe)
    if extras and salt:
        extras[0] = (*(extras[0] or ()), *salt)
    if lookahead:
        ends = range(block_size, len(tokens), block_size)
        extras = [
            (extra, *tokens[end : end + lookahead])
            for extra, end in zip(extras, ends, strict=False)
        ]
    return extras, alike


def _item_keys(
    found: Iterator[tuple[list[Span], range]], always: tuple[Any, ...], recipe: Recipe
) -> tuple[list[ExtraKeys], list[range]]:
    """Return the keys of each block: those that it always has, and those of its items.

    Also return the runs of blocks that have only the key of the item around them.
    """
    extras: list[ExtraKeys] = []
    alike: list[range] = []
    for items, starts in found:
        if not items:
            extras += repeat(always or None, len(starts))
        elif recipe.extra_keys == "tagged" and len(items) == 1 and not always:
            # The usual case without calls for each block: 0.15 µs instead of 0.6 µs.
            identifier, offset, _ = items[0]
            if len(starts) > 2:  # the item may begin in the first block
                alike.append(range(len(extras) + 1, len(extras) + len(starts)))
            extras += [(("mm", identifier, offset - start),) for start in starts]
        else:
            extras += [
                (*always, *[_item_key(item, start, recipe) for item in items]) for start in starts
            ]
    return extras, alike


def event_id(key: bytes) -> int:
    """Return the low 64 bits: a block's id in KV events (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES)."""
    return int.from_bytes(checks.content("key", key), "big") & _MASK_64


def event_extra_keys(extra: ExtraKeys, *, version: str = LATEST) -> ExtraKeys:
    """Return a block's extra keys as in KV events: without the tags; not for `lookahead`."""
    is_tagged = RELEASES.recipe(version).extra_keys == "tagged"
    if extra is None:
        return None
    if not issubclass(type(extra), tuple):
        raise InputTypeError(f"extra is a tuple or None, not {type(extra).__name__}")
    extra = checks.plain("extra", extra)
    if not is_tagged:
        return extra
    if not all(isinstance(key, tuple) and len(key) > 1 for key in extra):
        raise InputTypeError("extra holds tuples, as extra_keys() gives them")
    return tuple(key[1:] if key[0] == "mm" else key[1] for key in extra)


def _items_of_blocks(  # noqa: PLR0917
    items: Sequence[Span],
    recipe: Recipe,
    block_size: int,
    lookahead: int,
    resumed: set[int],
    stop: int,
) -> Iterator[tuple[list[Span], range]]:
    """Yield runs of blocks, by their starts, with the items that the engine finds in each.

    The engine keeps an index among the items from block to block. If items touch or contain each
    other, what it skips is part of the keys, so each step here is the engine's own.
    """
    index = start = 0
    while start < stop:
        end = start + block_size
        if start in resumed:
            index = _resumed_index(items, start, recipe)
        # Runs of equal blocks take 0.1 µs for a block, one after another 1.5 µs.
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
    """Return how many blocks from `start` on have no item, or only the one around them.

    At least one is counted, and None means all others.
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
    """Return the items between `start` and `end` from the index on, and the next index."""
    found: list[Span] = []
    if not items or _is_past(items[-1], start, recipe):
        return found, index
    while index < len(items) and items[index].offset < end:
        item = items[index]
        if not _is_past(item, start, recipe):
            found.append(item)
            if item.end > end:  # the next block finds it again
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
    hashed_after = [
        checks.whole("hashed_after", number)
        for number in checks.listed("hashed_after", hashed_after)
    ]
    if any(later < earlier for earlier, later in pairwise([*hashed_after, total])):
        raise InputValueError(f"hashed_after rises, to no more than the {total} tokens")
    hashed = [max(0, number - lookahead) // block_size for number in hashed_after]
    return {blocks * block_size for blocks in hashed if blocks}


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
    salt = "" if cache_salt is None else _copied("cache_salt", cache_salt)
    if not salt:
        return ()
    return (("cache_salt", salt),) if recipe.extra_keys == "tagged" else (salt,)


def _algorithm(name: str) -> _Algorithm:
    name = checks.text("algorithm", name)
    if name not in _ALGORITHMS:
        raise InputValueError(
            f"unknown algorithm {name[:40]!r}: choose one of {', '.join(_ALGORITHMS)}"
        )
    return _ALGORITHMS[name]


def _check_tokens(tokens: Any) -> list[int]:
    return checks.token_list("tokens", tokens)


def _check_items(items: Any) -> list[Span]:
    checked = []
    for item in checks.listed("items", items):
        if isinstance(item, engine.Span):
            item = Span(item.whole_key().hex(), item.start, item.end - item.start)  # noqa: PLW2901
        if not issubclass(type(item), Span):
            raise InputTypeError(f"items holds Spans, not {type(item).__name__}")
        identifier, offset, length = checks.listed("an item", item)
        checked.append(
            Span(
                _copied("identifier", identifier),
                checks.whole("an item's offset", offset, 0, checks.MAX_TOKENS),
                checks.whole("an item's length", length, 1, checks.MAX_TOKENS),
            )
        )
    if any(later.offset < earlier.offset for earlier, later in pairwise(checked)):
        raise InputValueError("items are in the order of their offsets, as vLLM sorts them")
    return checked


def _check_lora(lora: Any) -> Lora:
    if not issubclass(type(lora), Lora):
        raise InputTypeError(f"lora is a Lora or None, not {type(lora).__name__}")
    name, path = checks.listed("lora", lora)
    return Lora(_copied("lora's name", name), _copied("lora's path", path))


def _copied(name: str, text: Any) -> str:
    """Return a copy: a pickle shows which of its texts are one object, and in vLLM none are."""
    return checks.text(name, text).encode().decode()
