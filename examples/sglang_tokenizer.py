"""SGLang's items, hashed in the tokenizer beside its event loop: the scheduler hashes nothing.

In the engine, `tokenize` is where the tokenizer manager has the processor's items and has not yet
sent them: after `mm_processor.process_mm_data_async`, before the tokenized request is made.
"""
# ruff: noqa: T201  (an example shows what it found)

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmhash.engines import sglang
from mmhash.executor import AsyncHasher


@dataclass
class Item:
    """What is looked at of the engine's `MultimodalDataItem`, which is taken as well."""

    feature: Any = None
    precomputed_embeddings: Any = None
    hash: int | None = None
    pad_value: int | None = None
    pad_values: tuple[int, ...] | None = None
    offsets: list[tuple[int, int]] = field(default_factory=list)


async def tokenize(number: int, hasher: AsyncHasher) -> Item:
    """What the tokenizer does for one request: here its processor makes an array of one number."""
    item = Item(feature=np.full((1024, 1176), number % 4, np.float32), offsets=[(4, 259)])
    await sglang.precompute([item], hasher)
    return item


async def main() -> None:
    """Tokenize some requests at once: four contents, four hashes."""
    # One for the tokenizer's life. While over 512 MiB are under way, further items are left to the
    # scheduler, so that the tokenizer goes on accepting.
    async with AsyncHasher(max_inflight_bytes=512 << 20, on_pressure="defer") as hasher:
        items = await asyncio.gather(*(tokenize(number, hasher) for number in range(16)))
        print(f"{len({item.hash for item in items})} hashes of {len(items)} items")
        print(f"the first pads begin with {items[0].pad_value}")


if __name__ == "__main__":
    asyncio.run(main())
