"""The hash functions of vLLM's block keys: `--prefix-caching-hash-algo`."""

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from xxhash import xxh3_128

from mmhash.arguments import check_text
from mmhash.engines import cbor
from mmhash.errors import InputValueError

DEFAULT_ALGORITHM = "sha256"
"""The engine's default: SHA-256 of pickles."""


class BlockHash(NamedTuple):
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
    "sha256": BlockHash(_pickled, sha256, _tuples, True),
    "sha256_cbor": BlockHash(cbor.dumps, sha256, cbor.int_arrays, True),
    "xxhash": BlockHash(_pickled, xxh3_128, _tuples, False),
    "xxhash_cbor": BlockHash(cbor.dumps, xxh3_128, cbor.int_arrays, False),
}


def block_hash(name: str) -> BlockHash:
    """Return the hash function with this name."""
    name = check_text("block_algorithm", name)
    if name not in _BLOCK_HASHES:
        raise InputValueError(
            f"unknown block_algorithm {name[:40]!r}: choose one of {', '.join(_BLOCK_HASHES)}"
        )
    return _BLOCK_HASHES[name]


def copied_text(name: str, text: Any) -> str:
    """Return a copy in which no two texts are one object, as in vLLM: a pickle would show it."""
    return check_text(name, text).encode().decode()
