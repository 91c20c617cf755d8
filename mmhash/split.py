"""A bundle cut into its items, each a view: an image has one key alone and beside others."""

from itertools import accumulate, pairwise
from math import prod
from typing import Any

from mmhash.errors import InputTypeError, InputValueError


def split(feature: Any, *, grids: Any = None, counts: Any = None, dim: int = 0) -> list[Any]:
    """Cut `feature` along `dim` into one view an item, in order, without a copy.

    `grids` has a row of 2 or 3 numbers an item, whose product is the item's length along `dim`
    (the `image_grid_thw` of a processor). `counts` has those lengths themselves, or is one number
    n: then the bundle holds n items of length 1.
    """
    if not hasattr(feature, "shape") or not hasattr(feature, "__getitem__"):
        raise InputTypeError(f"split() cuts an array or tensor, not a {type(feature).__name__}")
    if (grids is None) == (counts is None):
        raise InputTypeError("split() takes either grids or counts")
    axes = len(feature.shape)
    if not -axes <= dim < axes:
        raise InputValueError(f"dim {dim} is not one of the feature's {axes}")
    dim %= axes
    return [
        feature[(slice(None),) * dim + (slice(start, stop),)]
        for start, stop in pairwise(_bounds(int(feature.shape[dim]), grids, counts))
    ]


def _bounds(length: int, grids: Any, counts: Any) -> list[int]:
    """Where each item starts, and where the last one ends: `length`, or the input is wrong."""
    if isinstance(counts, int) and not isinstance(counts, bool):
        if counts != length:
            raise InputValueError(f"counts says {counts} items, but there are {length} rows")
        return list(range(length + 1))
    if counts is not None:
        name, lengths = "counts", _naturals("counts", _as_list("counts", counts))
    else:
        name, lengths = "grids", [prod(row) for row in _rows(grids)]
    if sum(lengths) != length:
        raise InputValueError(f"{name} add up to {sum(lengths)}, but there are {length} rows")
    return list(accumulate(lengths, initial=0))


def _rows(grids: Any) -> list[list[int]]:
    rows = [_naturals("grids", _as_list("a row of grids", row)) for row in _as_list("grids", grids)]
    if any(len(row) not in {2, 3} or len(row) != len(rows[0]) for row in rows):
        raise InputValueError("grids has 2 or 3 numbers a row, the same in each")
    return rows


def _as_list(name: str, values: Any) -> list[Any]:
    """What an array, a tensor, a list or a tuple holds, as a list."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, (list, tuple)):
        raise InputTypeError(f"{name} is a list, an array or a tensor, not {values!r}")
    return list(values)


def _naturals(name: str, values: list[Any]) -> list[int]:
    for value in values:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise InputTypeError(f"{name} holds whole numbers, not {value!r}")
        if value < 0:
            raise InputValueError(f"{name} holds no negative numbers, but {value}")
    return [int(value) for value in values]
