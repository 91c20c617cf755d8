"""Page keys: the names of KV pages in SGLang's storage and in its KV events."""

import hashlib
import re
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from mmhash.arguments import check_bytes, check_int, check_optional_text
from mmhash.engines import checks
from mmhash.engines.releases import is_since
from mmhash.engines.sglang.releases import LATEST, RELEASES, require
from mmhash.errors import InputTypeError, InputValueError

Tokens = Sequence[int] | Sequence[Sequence[int]] | np.ndarray[Any, Any]
"""Token ids and pad values, or pairs of ids (the bigrams that speculative decoding keeps)."""

_HEX_64 = re.compile(r"[0-9a-fA-F]{64}")
_MAX_NARROW = 2**32 - 1
_MAX_TOKEN = 2**63 - 1
_MAX_PAGE = 2**31 - 1


def page_keys(
    tokens: Tokens,
    page_size: int | None,
    *,
    prior: str | None = None,
    extra_key: str | None = None,
    cache_salt: str | None = None,
    version: str = LATEST,
) -> list[str]:
    """Return the storage key of each page in hex, chained; the last page may be short.

    The chain continues from the key `prior`, or begins with the namespace of `extra_key` and
    `cache_salt`. As in the engine, an empty `prior` begins the chain without a namespace.
    `page_size=None` means one page for all tokens.
    """
    seed = namespace_seed(extra_key, cache_salt, version=version)
    given = check_optional_text("prior", prior)
    keys = _chain(tokens, page_size, seed if given is None else given, version)
    return [key.hex() for key in keys]


def event_keys(
    tokens: Tokens, page_size: int, *, cache_salt: str | None = None, version: str = LATEST
) -> list[str]:
    """Return the keys behind the ids in KV events: storage keys without `extra_key`."""
    _require_namespaces(None, cache_salt, version)
    return [key.hex() for key in _chain(tokens, page_size, _event_prior(cache_salt), version)]


def named_pages(
    tokens: Tokens,
    page_size: int,
    *,
    extra_key: str | None,
    cache_salt: str | None,
    version: str,
    tenant: bytes | None,
) -> tuple[list[bytes], list[int]]:
    """Return the storage key and the event id of each page.

    `tenant` changes no key: keys are kept for later prompts of the same tenant, because timing
    would reveal them to others.
    """
    seed = namespace_seed(extra_key, cache_salt, version=version)
    keys = event_names = _chain(tokens, page_size, seed, version, tenant)
    if seed is not None:  # event ids have another seed than keys
        event_names = _chain(tokens, page_size, _event_prior(cache_salt), version, tenant)
    words = np.frombuffer(b"".join(event_names), ">i8")
    return keys, words.reshape(-1, 4)[:, 0].tolist()  # a key has four words


def _event_prior(cache_salt: str | None) -> str | None:
    """Return the key that begins the chain behind the ids in KV events."""
    if cache_salt is None:
        return None
    return hashlib.sha256(b"sglang-cache-salt-v1\0" + cache_salt.encode()).hexdigest()


def namespace_seed(
    extra_key: str | None, cache_salt: str | None, *, version: str = LATEST
) -> str | None:
    """Return the seed of a chain of storage keys in hex, or None if neither argument is given."""
    _require_namespaces(extra_key, cache_salt, version)
    seed = _seed(b"sglang-cache-namespace-v1", extra_key, cache_salt)
    return seed.hex() if seed else None


def event_seed(
    extra_key: str | None, cache_salt: str | None, *, version: str = LATEST
) -> bytes | None:
    """Return the seed for `namespaced_event_id`, or None if neither argument is given."""
    _require_namespaces(extra_key, cache_salt, version)
    seed = _seed(b"sglang-kv-event-namespace-v1", extra_key, cache_salt)
    has_seeds = is_since(version, "0.5.22")
    require(has_seeds or seed is None, "namespaces of ids in events", "0.5.22", version)
    return seed


def event_id(page_key: str) -> int:
    """Return the id of a page in KV events: the first 64 bits of its key, signed."""
    return int.from_bytes(_digest(page_key, "page_key")[:8], "big", signed=True)


def namespaced_event_id(identifier: int, seed: bytes | None) -> int:
    """Return the id of a page in events that are published by namespace."""
    identifier = check_int("identifier", identifier, -(2**63), 2**63 - 1)
    if seed is None:
        return identifier
    seed = check_bytes("seed", seed)
    digest = hashlib.sha256(seed + identifier.to_bytes(8, "big", signed=True)).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _require_namespaces(extra_key: str | None, cache_salt: str | None, version: str) -> None:
    """Refuse a namespace that is not text, or that the release does not support."""
    check_optional_text("extra_key", extra_key)
    check_optional_text("cache_salt", cache_salt)
    namespaces = RELEASES.recipe(version).namespaces
    require(namespaces or extra_key is cache_salt is None, "cache namespaces", "0.5.20", version)


def _seed(tag: bytes, *parts: str | None) -> bytes | None:
    if all(part is None for part in parts):
        return None
    hasher = hashlib.sha256(tag)
    for part in parts:
        if part is None:
            hasher.update(b"\0")
        else:
            encoded = part.encode()
            hasher.update(b"\1" + len(encoded).to_bytes(8, "little") + encoded)
    return hasher.digest()


def _digest(text: str, name: str) -> bytes:
    """Return the 32 bytes of a key in hex."""
    if not isinstance(text, str) or not _HEX_64.fullmatch(text):
        raise InputValueError(f"{name} must be 64 hex digits")
    return bytes.fromhex(text)


def _chain(
    tokens: Tokens,
    page_size: int | None,
    seed: str | None,
    version: str,
    tenant: bytes | None = None,
) -> list[bytes]:
    if page_size is not None:
        page_size = check_int("page_size", page_size, 1, _MAX_PAGE)
    ids, width = _ids(tokens)
    if len(ids) and ids.max() > _MAX_NARROW:
        has_wide = RELEASES.recipe(version).wide_pages
        require(has_wide, "tokens above 32 bits", "0.5.23", version)
    digest = _digest(seed, "prior") if seed else b""
    if page_size is None:
        return list(_run_keys(tenant, digest, ids.astype("<u8").tobytes(), max(1, len(ids))))
    step = page_size * width
    name = _kept_keys if page_size <= _RUN_TOKENS else _run_keys
    run = 8 * step * max(1, _RUN_TOKENS // page_size)
    data = ids.astype("<u8").tobytes()
    keys: list[bytes] = []
    for start in range(0, len(data), run):
        keys += name(tenant, digest, data[start : start + run], step)
        digest = keys[-1]
    return keys


# Prompts are named in runs of this many tokens. The keys of the last runs are kept, because most
# prompts continue another: 250 000 tokens, which take 20 MB in pages of one token.
_RUN_TOKENS = 256
_RUNS_KEPT = 1024


def _run_keys(_tenant: bytes | None, digest: bytes, data: bytes, step: int) -> Sequence[bytes]:
    """Return the keys of consecutive pages, each of `step` ids of 64 bits in the data.

    `digest` is the key of the page before them.
    """
    keys = []
    for page in _pages(np.frombuffer(data, "<u8"), step):
        digest = hashlib.sha256(digest + page).digest()
        keys.append(digest)
    return keys


_kept_keys = lru_cache(_RUNS_KEPT)(_run_keys)


def _pages(ids: np.ndarray[Any, Any], step: int) -> list[bytes]:
    """Return the bytes of each page: 32 bits per id, or a mark and 64 bits if any id needs it."""
    narrow = ids.astype("<u4").tobytes()
    pages = [narrow[start : start + 4 * step] for start in range(0, len(narrow), 4 * step)] or [b""]
    data = ids.tobytes()
    for page in np.unique(np.flatnonzero(ids > _MAX_NARROW) // step).tolist():
        # The mark makes the number of bytes odd, so no narrow page looks the same.
        pages[page] = b"\xff" + data[8 * page * step : 8 * (page + 1) * step]
    return pages


def _ids(tokens: Any) -> tuple[np.ndarray[Any, Any], int]:
    """Return the ids in one flat sequence, and how many make a token: 1, or 2 for pairs."""
    try:
        if isinstance(tokens, (list, tuple)) and tokens and isinstance(tokens[0], (list, tuple)):
            values, width = _packed(checks.pairs("tokens", tokens)), 2
        else:
            found = checks.tokens("tokens", tokens)
            values = _packed(found) if isinstance(found, list) else found
            width = values.shape[1] if values.ndim == 2 else 1
    except InputTypeError as error:
        raise InputTypeError(f"tokens must be whole numbers, or pairs of them: {error}") from None
    if values.ndim == 2 and width != 2:
        raise InputTypeError(f"tokens must be whole numbers, or pairs of them, not rows of {width}")
    if values.size and (values.min() < 0 or values.max() > _MAX_TOKEN):
        raise InputValueError(f"a token must be 0 to {_MAX_TOKEN} (63 bits)")
    return values.reshape(-1), width


def _packed(tokens: Sequence[int]) -> np.ndarray[Any, Any]:
    # An array of 32 bits is much faster than np.array().
    try:
        return np.frombuffer(array("I", tokens), np.uint32)
    except OverflowError:
        pass
    try:
        return np.frombuffer(array("q", tokens), np.int64)
    except OverflowError:
        raise InputValueError(f"a token must be at most {_MAX_TOKEN}, and not negative") from None
