"""Items that change between two steps of a call: one item's key for another's content.

An iterator's item is read before the next is taken, and a bundle's length is checked at each use.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash import InputValueError

SIZES = (3, 8 << 10, 64 << 10, (64 << 10) + 1, 300_000)


def refilled(buffer: Any) -> Iterator[Any]:
    for number in range(3):
        buffer[:] = number
        yield buffer


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("options", [{}, {"algorithm": "xxh3"}, {"tenant": bytes(32)}])
def test_a_buffer_that_an_iterator_fills_again(size: int, options: dict[str, Any]) -> None:
    contents = [np.full(size, number, np.uint8) for number in range(3)]
    expected = mmhash.keys(contents, **options)
    for buffer in (np.empty(size, np.uint8), torch.empty(size, dtype=torch.uint8)):
        assert mmhash.keys(refilled(buffer), **options) == expected
        pending = mmhash.keys(refilled(buffer), wait=False, **options)
        buffer[:] = 9
        assert pending.wait() == expected


@pytest.mark.parametrize("size", SIZES)
def test_parts_that_an_iterator_fills_again(size: int) -> None:
    contents = [[np.full(size, number, np.uint8), b"x"] for number in range(3)]
    items = ([buffer, b"x"] for buffer in refilled(np.empty(size, np.uint8)))
    assert mmhash.keys(items) == mmhash.keys(contents)


@pytest.mark.parametrize("size", [*SIZES, 4 << 20])
def test_an_async_hasher_and_a_buffer_that_is_filled_again(size: int) -> None:
    async def hash_refilled() -> list[mmhash.Digest]:
        async with mmhash.AsyncHasher(threads=2) as hasher:
            return await hasher.keys(refilled(np.empty(size, np.uint8)))

    expected = mmhash.keys([np.full(size, number, np.uint8) for number in range(3)])
    assert asyncio.run(hash_refilled()) == expected


@pytest.mark.parametrize("kind", ["array", "tensor", "strided"])
@pytest.mark.parametrize("shape", [(3, 2), (3, 4), (2, 6), (8, 2), (0, 2), (12,)])
def test_a_bundle_that_was_resized_after_its_split(kind: str, shape: tuple[int, ...]) -> None:
    """Its items would have the bytes of others, or fewer than their shapes say."""
    feature: Any = np.arange(12).reshape(6, 2).copy()
    if kind == "array":
        bundle = mmhash.split(feature, counts=[2, 4])
        feature.resize(shape, refcheck=False)
    else:
        feature = torch.from_numpy(feature)
        feature = feature.t().clone().t() if kind == "strided" else feature.clone()
        bundle = mmhash.split(feature, counts=[2, 4])
        feature.data = torch.zeros(shape, dtype=torch.int64)
    for read in (mmhash.keys, mmhash.key, list, lambda items: items[1], lambda items: items[:]):
        with pytest.raises(InputValueError, match="resized"):
            read(bundle)
