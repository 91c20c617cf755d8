"""Hashing of a tensor in memory: as one item, or as the items of a bundle."""

from math import prod

import mmhash
from mmhash.cpu import hash_bytes
from mmhash.dtypes import ITEM_SIZE
from mmhash.errors import InputError
from mmhash_service.bodies.parsing import check_length
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.schema import JsonItem
from mmhash_service.problems.problem import Problem


def hash_tensor(
    context: RequestContext, item: JsonItem, dtype: str, shape: tuple[int, ...], content: bytearray
) -> list[HashedItem]:
    """Return the items of a tensor; run this in a thread."""
    check_length(dtype, shape, len(content))
    if item.grids is None and item.counts is None:
        digest = hash_bytes(memoryview(content), context.algorithm)
        return [context.item(item.name, "tensor", dtype, shape, len(content), digest)]
    items = []
    for number, (rows, part) in enumerate(_split(item, dtype, shape, content)):
        digest = hash_bytes(part, context.algorithm)
        name = item.part_name(number)
        items.append(context.item(name, "tensor", dtype, (rows, *shape[1:]), len(part), digest))
    return items


def _split(
    item: JsonItem, dtype: str, shape: tuple[int, ...], content: bytearray
) -> list[tuple[int, memoryview]]:
    """Return the number of rows and the bytes of each item of a bundle."""
    if not shape:
        raise Problem("invalid-tensor", reason="a bundle has a first dimension")
    row_size = prod(shape[1:]) * ITEM_SIZE[dtype]
    try:
        cuts = mmhash.split(_Rows(shape[0]), grids=item.grids, counts=item.counts)
    except InputError as error:
        raise Problem("invalid-tensor", reason=str(error)) from error
    whole = memoryview(content)
    return [
        (cut.stop - cut.start, whole[cut.start * row_size : cut.stop * row_size]) for cut in cuts
    ]


class _Rows:
    """A stand-in for an array that returns its slices, since numpy lacks some of our dtypes."""

    def __init__(self, count: int) -> None:
        self.shape = (count,)

    def __getitem__(self, index: tuple[slice]) -> slice:
        return index[0]
