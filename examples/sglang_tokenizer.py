"""SGLang's items, hashed in the tokenizer off its event loop: the scheduler hashes nothing.

In the engine, `tokenize` is the place where the tokenizer manager has the processor's items and has
not sent them yet: after `mm_processor.process_mm_data_async`, before the tokenized request is made.
"""
# ruff: noqa: T201  (an example prints its result)

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmhash.engines import sglang
from mmhash.executor import AsyncHasher


@dataclass
class Item:
    """The attributes that `precompute` uses of the engine's `MultimodalDataItem`."""

    feature: Any = None
    precomputed_embeddings: Any = None
    hash: int | None = None
    pad_value: int | None = None
    pad_values: tuple[int, ...] | None = None
    offsets: list[tuple[int, int]] = field(default_factory=list)


async def tokenize(number: int, hasher: AsyncHasher) -> Item:
    """Process one request, as the tokenizer does; the feature here is an array of one number."""
    item = Item(feature=np.full((1024, 1176), number % 4, np.float32), offsets=[(4, 259)])
    await sglang.precompute([item], hasher)
    return item


async def main() -> None:
    """Tokenize 16 requests at once: four contents, four hashes."""
    # One hasher for the life of the tokenizer, which reads at most 512 MiB at one time.
    async with AsyncHasher(max_inflight_bytes=512 << 20) as hasher:
        items = await asyncio.gather(*(tokenize(number, hasher) for number in range(16)))
        print(f"{len({item.hash for item in items})} hashes of {len(items)} items")
        print(f"the first pad value is {items[0].pad_value}")


if __name__ == "__main__":
    asyncio.run(main())
