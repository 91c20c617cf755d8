"""Splits a bundle into a view per item: an image has the same key alone and in a bundle."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from math import prod
from typing import Any, overload

import numpy as np

from mmhash.arguments import check_int
from mmhash.errors import InputTypeError, InputValueError, shown

# More items than any real bundle has. The limit bounds memory, because each item becomes a view.
MAX_ITEMS = 1 << 20


class Bundle:
    """The items of a feature that holds several; an item is sliced when it is accessed.

    `keys()` hashes the items in place without making slices. The class is a Sequence by
    registration: subclassing would make `isinstance` slow for all other objects.
    """

    index = Sequence.index
    count = Sequence.count

    def __init__(self, feature: Any, dim: int, bounds: Sequence[int]) -> None:
        self.feature = feature
        self.dim = dim
        self.bounds = bounds
        """The start of each item along `dim`, and the end of the last item.

        The bounds are a range if all items have the same length and are not empty.
        """

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        self.check_length()
        return self._slice(self.bounds[position], self.bounds[position + 1])

    def __iter__(self) -> Iterator[Any]:
        self.check_length()
        return (self._slice(start, stop) for start, stop in pairwise(self.bounds))

    def check_length(self) -> None:
        """Refuse a feature that was resized after the split: its items would differ."""
        shape = self.feature.shape
        if len(shape) <= self.dim or shape[self.dim] != self.bounds[-1]:
            raise InputValueError("the feature of a bundle was resized after split()")

    def _slice(self, start: int, stop: int) -> Any:
        return self.feature[(slice(None),) * self.dim + (slice(start, stop),)]

    def __repr__(self) -> str:
        return f"<Bundle of {len(self)} items>"


Sequence.register(Bundle)

LISTS = (list, tuple, Bundle)
"""The types of a list of items."""


def split(feature: Any, *, grids: Any = None, counts: Any = None, dim: int = 0) -> Bundle:
    """Split `feature` along `dim` into a view per item, in order and without copying.

    Args:
        feature: A numpy array or a torch tensor that holds several items.
        grids: A row of 2 or 3 numbers for each item, whose product is the item's length along
            `dim`: the `image_grid_thw` of a processor.
        counts: Instead of `grids`, the lengths themselves, or a number n for n items of length 1.
        dim: The dimension along which the items lie.

    Returns:
        A sequence of views, which `keys()` hashes in place.

    >>> feature = np.arange(24, dtype=np.float16).reshape(6, 4)
    >>> first, second = split(feature, grids=[[1, 2, 2], [1, 1, 2]])
    >>> first.shape, second.shape
    ((4, 4), (2, 4))
    """
    if isinstance(feature, memoryview) or not hasattr(feature, "shape"):
        raise InputTypeError(f"split() cuts an array or tensor, not a {type(feature).__name__}")
    if (grids is None) == (counts is None):
        raise InputTypeError("split() takes either grids or counts")
    axes = len(feature.shape)
    dim = check_int("dim", dim)
    if not -axes <= dim < axes:
        raise InputValueError(
            f"dim {shown(dim)} is out of range: the feature has {axes} dimensions"
        )
    dim %= axes
    return Bundle(feature, dim, _bounds(feature.shape[dim], grids, counts))


def _bounds(length: int, grids: Any, counts: Any) -> Sequence[int]:
    """Return the start of each item and the end of the last, which must be `length`."""
    if isinstance(counts, (int, np.integer)) and not isinstance(counts, bool):
        counts = int(counts)
        if length > MAX_ITEMS:
            raise InputValueError(f"a bundle must have at most {MAX_ITEMS} items, not {length}")
        if counts != length:
            raise InputValueError(f"counts says {shown(counts)} items, but there are {length} rows")
        return range(length + 1)
    if counts is not None:
        name, lengths = "counts", _naturals("counts", _as_list("counts", counts))
        if len(lengths) > MAX_ITEMS:
            raise InputValueError(f"counts holds more than {MAX_ITEMS} numbers")
    else:
        name, lengths = "grids", _products(grids)
    if sum(lengths) != length:
        raise InputValueError(
            f"{name} add up to {shown(sum(lengths))}, but there are {length} rows"
        )
    if length and lengths.count(lengths[0]) == len(lengths):
        return range(0, length + 1, lengths[0])
    return list(accumulate(lengths, initial=0))


def _products(grids: Any) -> list[int]:
    """Return the product of each row of grids."""
    rows = [_as_list("a row of grids", row) for row in _as_list("grids", grids)]
    if not rows:
        return []
    width, *others = set(map(len, rows))
    if others or width not in {2, 3}:
        raise InputValueError("each row of grids must have 2 numbers, or each row must have 3")
    # Check the numbers of all rows at once, which is faster.
    numbers = iter(_naturals("grids", list(chain.from_iterable(rows))))
    return list(map(prod, zip(*[numbers] * width, strict=True)))


def _as_list(name: str, values: Any) -> list[Any]:
    """Return the elements of an array, a tensor, a list or a tuple as a list."""
    if hasattr(type(values), "tolist"):
        values = values.tolist()
    if not isinstance(values, (list, tuple)):
        raise InputTypeError(
            f"{name} must be a list, an array or a tensor, not {type(values).__name__}"
        )
    return list(values)


def _naturals(name: str, values: list[Any]) -> list[int]:
    if {*map(type, values)} == {int} and min(values) >= 0:
        return values
    return [check_int(f"a number in {name}", value, 0) for value in values]
