"""AsyncHasher where there is a GPU: the same keys, from whatever stream and by whatever way."""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash.executor import AsyncHasher, hasher
from mmhash.executor.jobs import read_items

pytestmark = pytest.mark.gpu


def noise(nbytes: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, nbytes, dtype=np.uint8))


@pytest.mark.parametrize("algorithm", ["blake3", "xxh3"])
def test_keys_are_those_of_the_host(algorithm: str) -> None:
    large, secret = noise(20 << 20), bytes(range(32))
    host = [large, large.view(torch.float16).reshape(2, -1), large[1::2], large.numpy(), b"bytes" * 99_999,
            [large, large[:9]], torch.ones(3), torch.empty(0)]  # fmt: skip
    there = [
        [part.cuda() for part in item] if isinstance(item, list)
        else item.cuda() if isinstance(item, torch.Tensor)
        else item
        for item in host
    ]  # fmt: skip

    async def main() -> None:
        async with AsyncHasher(threads=2) as one:
            for tenant in (None, secret):
                right = mmhash.keys(host, algorithm=algorithm, tenant=tenant)
                for items in (there, host):
                    assert await one.keys(items, algorithm=algorithm, tenant=tenant) == right
            assert not one._running_bytes

    asyncio.run(main())


def test_what_the_callers_stream_holds_comes_first() -> None:
    right = mmhash.key(torch.full((5 << 20,), 7.0))

    async def main() -> None:
        async with AsyncHasher() as one:
            await one.key(torch.ones(4).cuda())
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                data = torch.zeros(5 << 20, device="cuda")
                torch.cuda._sleep(100_000_000)
                data.fill_(7.0)
                call = asyncio.ensure_future(one.key(data))
                await asyncio.sleep(0)
            assert await call == right

    asyncio.run(main())


@pytest.mark.parametrize("limit", [256 << 20, 3 << 20])
def test_the_items_of_a_call_are_launched_together(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    tensors = [noise(1 << 20).cuda() + number for number in range(12)]
    launched: list[int] = []

    def count(items: Any, *args: Any) -> Any:
        launched.append(len(items))
        return read_items(items, *args)

    monkeypatch.setattr(hasher, "read_items", count)

    async def main() -> None:
        async with AsyncHasher(max_inflight_bytes=limit) as one:
            found = await one.keys([*tensors, tensors[0]])
            assert found == mmhash.keys([*tensors, tensors[0]])
            assert sum(launched) == len(tensors)
            with pytest.raises(mmhash.InputTypeError, match="item 1"):
                await one.keys([tensors[0], tensors[1].to_sparse()])

    asyncio.run(main())
    assert max(launched) == min(12, limit >> 20)
