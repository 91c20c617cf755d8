"""Choose the grid of tiles whose shape is nearest to an image's, as InternVL and Phi-4 do."""

from collections.abc import Sequence
from functools import lru_cache

from mmhash.prompts.families.family import MediaSize


@lru_cache(maxsize=64)
def list_grids(least: int, most: int) -> list[tuple[int, int]]:
    """Return the grids (columns, rows) of `least` to `most` tiles, ordered by tiles as in vLLM.

    Ties are in the order of Python's set, and settle the choice. For each n from `least` to `most`,
    vLLM adds all grids of up to n columns and rows to a set, most of them again and again. Here
    only new grids are added, in the same order.
    """
    grids = {
        (columns, rows)
        for columns in range(1, least + 1)
        for rows in range(1, least + 1)
        if least <= columns * rows <= most
    }
    for side in range(least + 1, most + 1):
        longest = most // side
        grids.update((columns, side) for columns in range(1, min(side - 1, longest) + 1))
        grids.update((side, rows) for rows in range(1, min(side, longest) + 1))
    return sorted(grids, key=lambda grid: grid[0] * grid[1])


def choose_grid(
    size: MediaSize, grids: Sequence[tuple[int, int]], tile_pixels: int
) -> tuple[int, int]:
    """Return the grid with the nearest aspect ratio; of ties, the last that is not too large."""
    ratio = size.width / size.height
    area = size.width * size.height
    best, best_distance = (1, 1), float("inf")
    for grid in grids:
        distance = abs(ratio - grid[0] / grid[1])
        is_tie = distance == best_distance and area > 0.5 * tile_pixels * grid[0] * grid[1]
        if distance < best_distance or is_tie:
            best, best_distance = grid, distance
    return best
