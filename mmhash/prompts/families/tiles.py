"""The grid of tiles whose shape is the nearest to an image's, as InternVL and Phi-4 choose it."""

from collections.abc import Sequence
from functools import lru_cache

from mmhash.prompts.families.family import MediaSize


@lru_cache(maxsize=64)
def list_grids(least: int, most: int) -> list[tuple[int, int]]:
    """Return the grids (columns, rows) of `least` to `most` tiles, by tiles and then by columns."""
    return sorted(
        (
            (columns, rows)
            for columns in range(1, most + 1)
            for rows in range(1, most // columns + 1)
            if columns * rows >= least
        ),
        key=lambda grid: grid[0] * grid[1],
    )


@lru_cache(maxsize=64)
def list_grids_in_set_order(least: int, most: int) -> list[tuple[int, int]]:
    """Return the same grids by tiles, equally many in the order of a set of all, as vLLM does.

    The order settles ties. vLLM adds all grids of up to n columns and rows for each n from `least`
    to `most`: most of them again and again. Only the new ones are added here, in the same order.
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
    """Return the grid with the nearest aspect ratio; of equals, the last that is not too large."""
    ratio = size.width / size.height
    area = size.width * size.height
    best, best_distance = (1, 1), float("inf")
    for grid in grids:
        distance = abs(ratio - grid[0] / grid[1])
        is_tie = distance == best_distance and area > 0.5 * tile_pixels * grid[0] * grid[1]
        if distance < best_distance or is_tie:
            best, best_distance = grid, distance
    return best
