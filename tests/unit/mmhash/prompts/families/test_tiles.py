"""The grid of tiles that is the nearest to an image's shape."""

from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.tiles import choose_grid, list_grids, list_grids_in_set_order


def test_grids_are_in_order() -> None:
    assert list_grids(1, 4) == [
        (1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (2, 2), (4, 1),
    ]  # fmt: skip
    assert list_grids(3, 4) == [(1, 3), (3, 1), (1, 4), (2, 2), (4, 1)]
    assert list_grids(5, 4) == []


def test_grids_in_set_order_are_those_of_vllm() -> None:
    """The order of a set depends on that in which it got its values."""
    for least, most in [
        (1, 1),
        (1, 5),
        (1, 12),
        (2, 3),
        (3, 40),
        (7, 64),
        (1, 64),
        (64, 64),
        (5, 4),
    ]:
        grids = {
            (columns, rows)
            for tiles in range(least, most + 1)
            for columns in range(1, tiles + 1)
            for rows in range(1, tiles + 1)
            if least <= columns * rows <= most
        }
        expected = sorted(grids, key=lambda grid: grid[0] * grid[1])
        assert list_grids_in_set_order(least, most) == expected


def test_nearest_ratio() -> None:
    grids = list_grids(1, 12)
    assert choose_grid(MediaSize(1600, 400), grids, 448 * 448) == (4, 1)
    assert choose_grid(MediaSize(1, 8192), grids, 448 * 448) == (1, 12)
    assert choose_grid(MediaSize(9, 9), [], 448 * 448) == (1, 1)


def test_more_tiles_for_a_larger_image_of_equal_shape() -> None:
    grids = list_grids(1, 12)
    assert choose_grid(MediaSize(448, 448), grids, 448 * 448) == (1, 1)
    assert choose_grid(MediaSize(640, 640), grids, 448 * 448) == (2, 2)
    assert choose_grid(MediaSize(2000, 2000), grids, 448 * 448) == (3, 3)
