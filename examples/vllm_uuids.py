"""Passes keys to vLLM as `multi_modal_uuids`: the engine uses them, and hashes nothing itself.

A gateway that knows an image's key can find the worker that has the image cached. `llm.generate`
accepts None in place of an image whose uuid is in the cache.
"""
# ruff: noqa: T201  (an example prints its result)

import asyncio
from typing import Any

from PIL import Image

from mmhash.engines import vllm
from mmhash.executor import AsyncHasher


async def prompt(text: str, images: list[Image.Image], hasher: AsyncHasher) -> dict[str, Any]:
    """Return a prompt in the form of `LLM.generate` and `AsyncLLM.generate`."""
    keys = await hasher.keys(images)
    return {
        "prompt": text,
        "multi_modal_data": {"image": images},
        "multi_modal_uuids": {"image": [vllm.uuid(key) for key in keys]},
    }


async def main() -> None:
    """Make two prompts that share an image, and therefore its uuid."""
    cat, dog = Image.new("RGB", (640, 480), "orange"), Image.new("RGB", (640, 480), "brown")
    async with AsyncHasher() as hasher:
        one = await prompt("<image>What is it?", [cat], hasher)
        two = await prompt("<image><image>Which barks?", [dog, cat.copy()], hasher)
    print(one["multi_modal_uuids"])
    print(two["multi_modal_uuids"])


if __name__ == "__main__":
    asyncio.run(main())
