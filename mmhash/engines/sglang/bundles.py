"""SGLang's split of a bundle into items."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mmhash.arguments import check_int
from mmhash.engines import checks
from mmhash.engines.releases import is_since
from mmhash.engines.sglang.releases import LATEST, RELEASES
from mmhash.errors import InputTypeError, InputValueError
from mmhash.torch_tensor import is_tensor

# The first release that splits bundles, splits without a grid, splits rows of patches, and rejects
# a flat grid.
_SPLITS, _SPLITS_BY_ROW, _SPLITS_PATCHES, _NEEDS_ROWS = "0.5.7", "0.5.10", "0.5.14", "0.5.15"

# The names under which processors store the rows of each image, and the first release that reads
# each name.
_IMAGE_GRIDS = {"image_grid_thw": "0.5.7", "grid_thws": "0.5.23", "image_grid_hws": "0.5.15"}
_VIDEO_GRID = "video_grid_thw"
# Members with a row per patch. The feature has a row per item, and `num_patches` counts the patches
# of each item.
_PATCH_ROWS = frozenset({"patch_pixel_values", "patch_newline_mask"})


@dataclass
class BundleItem:
    """The attributes of the engine's own multimodal item that the split reads."""

    modality: Any
    offsets: Sequence[tuple[int, int]] | None = None
    feature: Any = None
    precomputed_embeddings: Any = None
    model_specific_data: dict[str, Any] = field(default_factory=dict)
    hash: int | None = None


_FIELDS = tuple(member.name for member in fields(BundleItem) if member.name != "hash")

AnyItem = TypeVar("AnyItem")


class _Cut(NamedTuple):
    """The rows and the offsets of one item of a bundle."""

    start: int
    end: int
    first_offset: int
    last_offset: int


@checks.readable("the item")
def split_bundle(item: AnyItem, *, version: str = LATEST) -> list[AnyItem]:
    """Return the items into which SGLang splits an item, or a list of the item if it is not split.

    Split items have no hash, because the hash belonged to the bundle.
    """
    RELEASES.recipe(version)  # raises for an unknown release
    bundle: Any = item
    missing = [name for name in _FIELDS if not hasattr(bundle, name)]
    if missing:
        raise InputTypeError(
            f"an item must have {', '.join(_FIELDS)}: this one has no {missing[0]}"
        )
    offsets = [] if bundle.offsets is None else checks.listed("offsets", bundle.offsets)
    count = len(offsets)
    if count <= 1 or not is_since(version, _SPLITS):
        return [item]
    modality = str(getattr(bundle.modality, "name", bundle.modality)).upper()
    data = checks.named("model_specific_data", bundle.model_specific_data)
    if modality == "IMAGE":
        names = [name for name, first in _IMAGE_GRIDS.items() if is_since(version, first)]
        grid = next((data[name] for name in names if data.get(name) is not None), None)
        if _length(grid) == count and (_has_rows(grid) or not is_since(version, _NEEDS_ROWS)):
            return _split_by_grid(bundle, _numbers(grid), [1] * count)
    elif modality == "VIDEO" and data.get(_VIDEO_GRID) is not None:
        rows = _numbers(data[_VIDEO_GRID])
        return _split_by_grid(bundle, rows, [row[0] for row in rows])
    return _split_by_row(bundle, count, version) if is_since(version, _SPLITS_BY_ROW) else [item]


def _split_by_grid(bundle: Any, rows: list[list[int]], offsets: list[int]) -> list[Any]:
    """Return items with as many feature rows as their grid has patches, and their offsets."""
    bounds = list(accumulate(map(prod, rows), initial=0))
    turns = list(accumulate(offsets, initial=0))
    length = _length(bundle.feature)
    if length is None:
        length = _length(bundle.precomputed_embeddings)
    if turns[-1] != len(bundle.offsets) or length != bounds[-1]:
        return [bundle]

    def cut_data(name: str, value: Any, index: int, start: int, end: int) -> Any:
        del name
        if _length(value) == len(rows):
            return value[index : index + 1]
        return value[start:end] if _length(value) == length else value

    cuts = [
        _Cut(*rows_of, *turns_of)
        for rows_of, turns_of in zip(pairwise(bounds), pairwise(turns), strict=True)
    ]
    return list(_cut(bundle, cuts, cut_data))


def _split_by_row(bundle: Any, count: int, version: str) -> list[Any]:
    """Return items of one row each if there are as many rows as offsets."""
    feature = bundle.feature if bundle.feature is not None else bundle.precomputed_embeddings
    if _length(feature) != count:
        return [bundle]
    patches = None
    if is_since(version, _SPLITS_PATCHES):
        patches = _patch_bounds(bundle.model_specific_data.get("num_patches"), count)

    def cut_data(name: str, value: Any, index: int, start: int, end: int) -> Any:
        if name in _PATCH_ROWS and patches and _length(value) == patches[-1]:
            return value[patches[index] : patches[index + 1]]
        if _length(value) != count:
            return value
        return [value[index]] if isinstance(value, (list, tuple)) else value[start:end]

    return list(_cut(bundle, [_Cut(i, i + 1, i, i + 1) for i in range(count)], cut_data))


def _cut(
    bundle: Any, cuts: list[_Cut], cut_data: Callable[[str, Any, int, int, int], Any]
) -> Iterator[Any]:
    for index, cut in enumerate(cuts):
        item = copy.copy(bundle)
        for name in ("feature", "precomputed_embeddings"):
            value = getattr(bundle, name)
            if value is not None:
                setattr(item, name, value[cut.start : cut.end])
        item.offsets = bundle.offsets[cut.first_offset : cut.last_offset]
        item.model_specific_data = {
            name: cut_data(name, value, index, cut.start, cut.end)
            for name, value in bundle.model_specific_data.items()
        }
        item.hash = None
        yield item


def _length(value: Any) -> int | None:
    """Return the number of rows of `value`, or None if it has no rows."""
    if is_tensor(value) or isinstance(value, np.ndarray):
        return int(value.shape[0]) if value.ndim else None
    return len(value) if isinstance(value, (list, tuple)) else None


def _has_rows(grid: Any) -> bool:
    if is_tensor(grid) or isinstance(grid, np.ndarray):
        return bool(grid.ndim == 2)
    return len(grid) > 0 and all(_length(row) is not None for row in grid)


def _numbers(grid: Any) -> list[list[int]]:
    try:
        return [[check_int("a grid", number) for number in _listed(row)] for row in _listed(grid)]
    except InputTypeError:
        raise InputValueError("a grid must have a row of whole numbers for each item") from None


def _listed(values: Any) -> list[Any]:
    return checks.listed("a grid", checks.unpacked(values))


def _patch_bounds(counts: Any, items: int) -> list[int] | None:
    if _length(counts) != items:
        return None
    try:
        flat = counts.reshape(-1) if hasattr(counts, "reshape") else counts
        counted = [checks.unpacked(number) for number in _listed(flat)]
        numbers = [check_int("num_patches", number) for number in counted]
    except InputTypeError:
        raise InputValueError("num_patches must have a whole number for each item") from None
    return list(accumulate(numbers, initial=0)) if min(numbers) >= 0 else None
