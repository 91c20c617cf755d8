"""Random sizes, errors and cancellations: EXECUTOR_SOAK_SECONDS=60 for as long as it takes."""

import asyncio
import gc
import os
import random
import time
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash.executor import AsyncHasher

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("EXECUTOR_SOAK_SECONDS", "1.5"))


def an_item(draw: random.Random, shared: list[Any]) -> Any:
    size = int(2 ** draw.uniform(0, 23))
    data = np.full(size, draw.randrange(256), np.uint8)
    match draw.randrange(9):
        case 0:
            return draw.choice([None, "text", np.ma.masked_array(data), torch.ones(9).to_sparse()])
        case 1:
            return data[:: draw.choice([-1, 2])]
        case 2:
            return torch.from_numpy(data)
        case 3:
            return [data, b"part"]
        case 4 | 5:
            return draw.choice(shared)
        case _:
            return data


@pytest.mark.timeout(SECONDS * 2 + 300)
def test_soak() -> None:
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    print(f"{seed=}")
    shared = [np.full(3 << 20, value, np.uint8) for value in range(3)]
    answers: list[int] = []
    held: list[weakref.ref[Any]] = []

    async def one_call(one: AsyncHasher) -> None:
        items = [an_item(draw, shared) for _ in range(draw.randrange(1, 5))]
        held.extend(
            weakref.ref(item)
            for item in items
            if isinstance(item, np.ndarray) and item.base is None
        )
        found = await one.keys(items, return_errors=True)
        for item, key in zip(items, found, strict=True):
            try:
                right = mmhash.key(item)
            except mmhash.InputError:
                assert isinstance(key, mmhash.InputError)
            else:
                assert key == right
        answers.append(len(items))

    async def main() -> None:
        until = time.monotonic() + SECONDS
        async with AsyncHasher(max_inflight_bytes=6 << 20, threads=3) as one:
            while time.monotonic() < until:
                calls = [asyncio.create_task(one_call(one)) for _ in range(draw.randrange(1, 40))]
                for _ in calls:
                    if draw.random() < 0.5:
                        await asyncio.sleep(draw.choice([0, 0, 0.0001, 0.001]))
                        for unlucky in draw.choices(calls, k=draw.randrange(3)):
                            unlucky.cancel()
                            del unlucky
                for outcome in await asyncio.gather(*calls, return_exceptions=True):
                    assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome
                assert one.stats()[:4] == (0, 0, 0, 0)
                assert not one._in_flight
                del calls, outcome
            for _ in range(100):  # a pool's thread lets go of its last call when it has its turn
                gc.collect()
                left = {id(item()) for item in held} - {id(None), *map(id, shared)}
                if not left:
                    break
                await asyncio.sleep(0.05)
            assert not left

    asyncio.run(main())
    assert answers
