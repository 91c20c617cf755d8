"""Segments of device memory cut into tiles: the work of a launch, one block per tile."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

# QUAD_SHIFT of blake3.cu, and the `head` of segments without small tiles.
_SMALL_SHIFT = 15
ALL: Final = 0xFFFFFFFF


class Tiling(NamedTuple):
    """Tile sizes: 2^shift bytes, and the small size from tile `head` of a segment on."""

    shift: int
    head: int


_SMALL: Final = Tiling(_SMALL_SHIFT, 0)


def choose_tiling(lengths: Sequence[int], processors: int) -> Tiling:
    """Return the tiling for BLAKE3.

    Small tiles, with four threads per chunk, finish sooner as long as each processor has at most
    one tile. Small tiles also take the remainder once every processor has a tile of 128 chunks.
    Otherwise some processors would do twice the work.

    A larger tile leaves more of its joining to full warps; a smaller tile keeps all processors
    busy. The sizes are tuned for an H200.
    """
    total = sum(lengths)
    if total <= processors << _SMALL_SHIFT:
        return _SMALL
    head = processors & ~1  # a pair of nodes starts at an even node
    rest = total - (head << 17)
    if len(lengths) == 1 and 0 < rest <= processors << _SMALL_SHIFT:
        return Tiling(17, head)
    if total < 64 << 20:
        return Tiling(17, ALL)
    if total <= 128 << 20:
        return Tiling(18, ALL)
    return Tiling(19 if total < 1 << 30 else 20, ALL)


class Grid(NamedTuple):
    """Segments cut into tiles. Each tile is the work of one block."""

    addresses: Sequence[int]
    lengths: Sequence[int]
    first_tiles: Sequence[int]
    """The first tile of each segment."""
    tiles: int
    tiling: Tiling


def cut(
    addresses: Sequence[int], lengths: Sequence[int], tile_shift: int | None, processors: int
) -> Grid:
    """Cut segments into tiles of 2^tile_shift bytes, or of a size chosen for all the data.

    An empty segment is one tile.
    """
    tiling = choose_tiling(lengths, processors) if tile_shift is None else Tiling(tile_shift, ALL)
    shift, head = tiling
    first_tiles: Sequence[int]
    if lengths.count(lengths[0]) == len(lengths):
        each = -(-lengths[0] >> shift) or 1
        tiles = each * len(lengths)
        first_tiles = range(0, tiles, each)
    else:
        *first_tiles, tiles = accumulate([-(-n >> shift) or 1 for n in lengths], initial=0)
    if 0 < head < tiles:  # a single segment
        tiles = head + ((lengths[0] - (head << shift) - 1) >> _SMALL_SHIFT) + 1
    return Grid(addresses, lengths, first_tiles, tiles, tiling)
