"""The table of hash algorithms: every difference between algorithms is looked up here.

To add an algorithm, add an entry to ALGORITHM_SPECS, its name to Algorithm, a state to states.py,
and the kernels cuda/NAME.cu and cuda/normalize_NAME.cu.
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
    """An algorithm's launch parameters on a GPU, and which images its fused kernel speeds up."""

    threads: int
    """Threads per block."""
    node_size: int
    """Bytes of scratch memory that a tile's digest or chaining value takes."""
    tile_shift: int | None
    """A tile is 2^tile_shift bytes. If None, the tile size depends on the amount of data."""
    fuses_partial_sectors: bool = False
    """The fused kernel is faster even for images that end within a memory sector."""
    fuses_channels_last: bool = False
    """The fused kernel is also faster for images whose channels are the last dimension."""


class AlgorithmSpec(NamedTuple):
    """An algorithm on every device."""

    digest_size: int
    new_state: Callable[[int], State]
    """Return a new CPU state that uses up to `threads` threads."""
    hash_short: Callable[[FlatBuffer], bytes]
    """Return a buffer's digest on one thread, which is faster than a state for a short buffer."""
    kernels: KernelSpec


ALGORITHM_SPECS: dict[Algorithm, AlgorithmSpec] = {
    "blake3": AlgorithmSpec(
        digest_size=32,
        new_state=blake3_state,
        hash_short=blake3_digest,
        kernels=KernelSpec(
            threads=128,
            node_size=32,
            tile_shift=None,
            fuses_channels_last=True,
        ),
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
        ),
    ),
}

DIGEST_SIZE: dict[str, int] = {name: spec.digest_size for name, spec in ALGORITHM_SPECS.items()}


def check_algorithm(name: str) -> Algorithm:
    """Return `name` if the table has it; otherwise raise an error that lists the algorithms."""
    if not isinstance(name, str):
        raise InputTypeError(f"an algorithm must be a str, not {type(name).__name__}")
    if name not in ALGORITHM_SPECS:
        raise InputValueError(
            f"unknown algorithm {name[:40]!r}: choose one of {', '.join(ALGORITHMS)}"
        )
    return name
