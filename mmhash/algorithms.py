"""The table of hash algorithms: everything that differs between them is looked up here.

A new algorithm is one entry of ALGORITHM_SPECS, its name in Algorithm, a state in states.py and the
kernels cuda/NAME.cu and cuda/normalize_NAME.cu. An unknown name is an error at every lookup.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from mmhash.errors import InputTypeError, InputValueError
from mmhash.states import (
    XXH3_LEAF,
    FlatBuffer,
    State,
    Xxh3Tree,
    blake3_digest,
    blake3_state,
    xxh3_digest,
)

Algorithm = Literal["blake3", "xxh3"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


class KernelSpec(NamedTuple):
    """Launch parameters of an algorithm's kernels, and the images for which fusing them pays."""

    threads: int
    """Threads of a block."""
    node_size: int
    """Bytes of scratch memory for a tile's digest or chaining value."""
    tile_shift: int | None
    """A tile is 2^tile_shift bytes; None: the size depends on the amount of data."""
    fuses_partial_sectors: bool
    """Normalising and hashing in one kernel pays for images that end within a memory sector."""
    fuses_channels_last: bool
    """The same for images whose channels are the last dimension."""


class AlgorithmSpec(NamedTuple):
    """One algorithm on every device."""

    digest_size: int
    new_state: Callable[[int], State]
    """Return a new CPU state that uses this number of threads."""
    hash_short: Callable[[FlatBuffer], bytes]
    """Return the digest of a buffer that one thread hashes: faster than a state if it is short."""
    kernels: KernelSpec
    assumed_rate: float
    """Bytes per second of one thread of a slow core of today, used until it is measured."""


ALGORITHM_SPECS: dict[Algorithm, AlgorithmSpec] = {
    "blake3": AlgorithmSpec(
        digest_size=32,
        new_state=blake3_state,
        hash_short=blake3_digest,
        kernels=KernelSpec(
            threads=128,
            node_size=32,
            tile_shift=None,
            fuses_partial_sectors=False,
            fuses_channels_last=True,
        ),
        assumed_rate=1e9,
    ),
    "xxh3": AlgorithmSpec(
        digest_size=16,
        new_state=Xxh3Tree,
        hash_short=xxh3_digest,
        kernels=KernelSpec(
            threads=160,
            node_size=16,
            tile_shift=XXH3_LEAF.bit_length() - 1,
            fuses_partial_sectors=True,
            fuses_channels_last=False,
        ),
        assumed_rate=5e9,
    ),
}

DIGEST_SIZE: dict[str, int] = {name: spec.digest_size for name, spec in ALGORITHM_SPECS.items()}


def check_algorithm(name: str) -> Algorithm:
    """Return `name` if it is an algorithm of the table; else raise an error that lists them."""
    if not isinstance(name, str):
        raise InputTypeError(f"an algorithm is a str, not {type(name).__name__}")
    if name not in ALGORITHM_SPECS:
        raise InputValueError(
            f"unknown algorithm {name[:40]!r}: choose one of {', '.join(ALGORITHMS)}"
        )
    return name
