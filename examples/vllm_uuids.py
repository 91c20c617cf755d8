"""vLLM's `multi_modal_uuids`, so that the engine takes our key and hashes nothing itself.

A gateway that has the image's key knows which worker has it in its cache; and `llm.generate` takes
None in the place of an image whose uuid it knows.
"""
# ruff: noqa: T201  (an example shows what it found)

import asyncio
from typing import Any

from PIL import Image

from mmhash.engines import vllm
from mmhash.executor import AsyncHasher


async def prompt(text: str, images: list[Image.Image], hasher: AsyncHasher) -> dict[str, Any]:
    """A prompt as `LLM.generate` and `AsyncLLM.generate` take it."""
    keys = await hasher.keys(images)
    return {
        "prompt": text,
        "multi_modal_data": {"image": images},
        "multi_modal_uuids": {"image": [vllm.uuid(key) for key in keys]},
    }


async def main() -> None:
    """Two prompts that share an image share its uuid."""
    cat, dog = Image.new("RGB", (640, 480), "orange"), Image.new("RGB", (640, 480), "brown")
    async with AsyncHasher() as hasher:
        one = await prompt("<image>What is it?", [cat], hasher)
        two = await prompt("<image><image>Which barks?", [dog, cat.copy()], hasher)
    print(one["multi_modal_uuids"])
    print(two["multi_modal_uuids"])


if __name__ == "__main__":
    asyncio.run(main())
