"""A tensor at hand as items: one, or as many as a bundle has."""

from math import prod

import mmhash
from mmhash.cpu import hash_bytes
from mmhash.errors import InputError
from mmhash.view import ITEM_SIZE
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import Item, JsonItem
from mmhash_service.items.shared_memory import check_count
from mmhash_service.runtime.context import RequestContext


def hash_tensor(
    call: RequestContext, item: JsonItem, dtype: str, shape: tuple[int, ...], content: bytearray
) -> list[Item]:
    """The items of a tensor: for a worker."""
    if len(content) != prod(shape) * ITEM_SIZE[dtype]:
        raise Problem("wrong-length")
    if item.grids is None and item.counts is None:
        digest = hash_bytes(memoryview(content), call.algorithm)
        return [call.item(item.name, "tensor", dtype, shape, len(content), digest)]
    check_count(call, item)
    items = []
    for number, (rows, part) in enumerate(_split(item, dtype, shape, content)):
        digest = hash_bytes(part, call.algorithm)
        items.append(
            call.item(
                item.part_name(number), "tensor", dtype, (rows, *shape[1:]), len(part), digest
            )
        )
    return items


def _split(
    item: JsonItem, dtype: str, shape: tuple[int, ...], content: bytearray
) -> list[tuple[int, memoryview]]:
    """How many rows each item of a bundle has, and its bytes."""
    if not shape:
        raise Problem("invalid-bundle")
    row = prod(shape[1:]) * ITEM_SIZE[dtype]
    try:
        cuts = mmhash.split(_Rows(shape[0]), grids=item.grids, counts=item.counts)
    except InputError as error:
        raise Problem("invalid-bundle") from error
    whole = memoryview(content)
    return [(cut.stop - cut.start, whole[cut.start * row : cut.stop * row]) for cut in cuts]


class _Rows:
    """So many rows, of which a cut is told and not made: numpy has not all of our dtypes."""

    def __init__(self, count: int) -> None:
        self.shape = (count,)

    def __getitem__(self, cuts: tuple[slice]) -> slice:
        return cuts[0]
