"""The keys of vLLM's prefix cache: a chain over whole blocks of tokens and their items."""

import pickle
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, NamedTuple

from xxhash import xxh3_128

from mmhash.arguments import check_bytes, check_optional_text, check_text
from mmhash.engines import cbor, checks, engine
from mmhash.engines.vllm.block_extras import (
    ExtraKeys,
    Lora,
    Span,
    copied_extra_keys,
    copied_text,
    extra_keys,
)
from mmhash.engines.vllm.releases import LATEST, RELEASES
from mmhash.errors import InputTypeError, InputValueError

DEFAULT_ALGORITHM = "sha256"
"""The engine's default for `--prefix-caching-hash-algo`: SHA-256 of pickles."""

_DEFAULT_SEED = "vllm-none-hash"
_MASK_64 = 2**64 - 1


class _BlockHash(NamedTuple):
    """The functions that serialize a value, hash the bytes, and prepare blocks of tokens."""

    dumps: Callable[[Any], bytes]
    new: Callable[[bytes], Any]
    arrays: Callable[[Sequence[int], int], Sequence[Any]]
    cryptographic: bool

    def __call__(self, value: Any) -> bytes:
        """Return the hash of a value."""
        digest: bytes = self.new(self.dumps(value)).digest()
        return digest


def _tuples(tokens: Sequence[int], length: int) -> list[tuple[int, ...]]:
    whole = tuple(tokens)  # slicing a list is slower
    stops = range(length, len(whole) + 1, length)
    return [whole[stop - length : stop] for stop in stops]


# Pickles as the engine writes them. mmhash never loads a pickle.
_pickled = partial(pickle.dumps, protocol=5)


_BLOCK_HASHES = {
    "sha256": _BlockHash(_pickled, sha256, _tuples, True),
    "sha256_cbor": _BlockHash(cbor.dumps, sha256, cbor.int_arrays, True),
    "xxhash": _BlockHash(_pickled, xxh3_128, _tuples, False),
    "xxhash_cbor": _BlockHash(cbor.dumps, xxh3_128, cbor.int_arrays, False),
}


def _block_hash(name: str) -> _BlockHash:
    name = check_text("block_algorithm", name)
    if name not in _BLOCK_HASHES:
        raise InputValueError(
            f"unknown block_algorithm {name[:40]!r}: choose one of {', '.join(_BLOCK_HASHES)}"
        )
    return _BLOCK_HASHES[name]


def block_keys(
    tokens: Sequence[int],
    block_size: int,
    *,
    version: str = LATEST,
    items: Sequence[Span | engine.Span] = (),
    cache_salt: str | None = None,
    lora: Lora | None = None,
    block_algorithm: str = DEFAULT_ALGORITHM,
    seed: str | None = None,
    lookahead: int = 0,
    hashed_after: Sequence[int] = (),
    tenant: bytes | None = None,
) -> list[bytes]:
    """Return the key of each whole block, bound to all blocks before it.

    `items` are in the order of their offsets. An item may reach past the tokens, which may be only
    the start of a prompt. `block_algorithm` is the engine's `--prefix-caching-hash-algo`, and
    `seed` its PYTHONHASHSEED. `lookahead` is how many tokens after a block its key includes. vLLM
    usually hashes a prompt in one step. If it did not, pass the number of tokens at each earlier
    step as `hashed_after`: until 0.30 the steps change which items later blocks contain. `tenant`
    changes no key: keys are kept for later prompts of the same tenant, because timing would reveal
    them to others.
    """
    parent = none_hash(version=version, seed=seed, block_algorithm=block_algorithm)
    packed = checks.token_array("tokens", tokens)
    extras = extra_keys(
        packed,
        block_size,
        version=version,
        items=items,
        cache_salt=cache_salt,
        lora=lora,
        lookahead=lookahead,
        hashed_after=hashed_after,
    )
    ids = packed[: len(extras) * block_size].tobytes()
    step = _RUN * block_size * packed.itemsize
    # A salt, or a block that binds many items, may take much memory.
    is_small = block_size <= _MAX_KEPT and max(map(len, filter(None, extras)), default=0) <= 2
    keys: list[bytes] = []
    for number, start in enumerate(range(0, len(ids), step)):
        bound = tuple(extras[number * _RUN : (number + 1) * _RUN])
        has_salt = number == 0 and cache_salt is not None
        name = _kept_keys if is_small and not has_salt else _run_keys
        run = ids[start : start + step]
        keys += name(tenant, block_algorithm, block_size, parent, run, bound)
        parent = keys[-1]
    return keys


# Prompts are named in runs of this many blocks. The keys of the last runs are kept, because most
# prompts continue another: 500 000 tokens in blocks of 16, which take about 10 MB.
_RUN = 16
_RUNS_KEPT = 2048
_MAX_KEPT = 64  # tokens of a block


def _run_keys(
    _tenant: bytes | None,
    algorithm: str,
    block_size: int,
    parent: bytes,
    ids: bytes,
    extras: tuple[ExtraKeys, ...],
) -> Sequence[bytes]:
    """Return the keys of consecutive blocks. `ids` has their tokens, of 64 bits each."""
    hash_, keys = _block_hash(algorithm), []
    dumps, new = hash_.dumps, hash_.new  # looked up once, not for each block
    for tokens, extra in zip(hash_.arrays(array("Q", ids), block_size), extras, strict=True):
        parent = new(dumps((parent, tokens, extra))).digest()
        keys.append(parent)
    return keys


_kept_keys = lru_cache(_RUNS_KEPT)(_run_keys)


def block_key(
    tokens: Sequence[int],
    *,
    parent: bytes = b"",
    extra: ExtraKeys = None,
    version: str = LATEST,
    block_algorithm: str = DEFAULT_ALGORITHM,
    seed: str | None = None,
) -> bytes:
    """Return the key of one block after `parent`; an empty parent means the root."""
    parent = check_bytes("parent", parent)
    if extra is not None and not isinstance(extra, tuple):
        raise InputTypeError(f"extra must be a tuple or None, not {type(extra).__name__}")
    with checks.readable("extra"):
        extra = copied_extra_keys(extra, version=version)
        cbor.dumps(extra)  # refuses objects that are not plain: a pickle would accept anything
    parent = parent or none_hash(version=version, seed=seed, block_algorithm=block_algorithm)
    return _block_hash(block_algorithm)((parent, tuple(checks.token_list("tokens", tokens)), extra))


def none_hash(
    *, version: str = LATEST, seed: str | None = None, block_algorithm: str = DEFAULT_ALGORITHM
) -> bytes:
    """Return the root before the first block; `seed` is the engine's PYTHONHASHSEED."""
    version, seed = check_text("version", version), check_optional_text("seed", seed)
    return _root(version, seed, check_text("block_algorithm", block_algorithm))


@lru_cache(64)  # a plan needs the root for each request
def _root(version: str, seed: str | None, block_algorithm: str) -> bytes:
    recipe = RELEASES.recipe(version)
    hash_ = _block_hash(block_algorithm)
    if seed is None:
        if not (recipe.default_root and hash_.cryptographic):
            raise InputValueError(
                f"without PYTHONHASHSEED the root of {block_algorithm} in vllm {version} is random"
                " in each process: set it there, and pass it here as seed"
            )
        seed = _DEFAULT_SEED
    return hash_(copied_text("seed", seed))


def event_id(key: bytes) -> int:
    """Return the low 64 bits: a block's id in KV events (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES)."""
    return int.from_bytes(check_bytes("key", key), "big") & _MASK_64
