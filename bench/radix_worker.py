"""A stand-in for a vLLM worker: it generates no text, but caches blocks as the engine does.

CAPACITY=1500 python -m uvicorn bench.radix_worker:app
"""

import os
from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from fastapi import FastAPI

from examples.stand_in_tokenizer import tokenize
from mmhash.engines import vllm

BLOCK_SIZE = 16


class Prefill(NamedTuple):
    """The number of cached blocks of a prompt, and the blocks that the cache stored and removed."""

    matched: int
    stored: list[str]
    removed: list[str]


class RadixCache:
    """The blocks of prompts, by key; above `capacity` the least recently used leaf is removed.

    It is a radix tree without nodes: a key depends on all keys before it, so it implies its path.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        # The least recently used first. A block is never used less recently than its successors.
        self._held: OrderedDict[str, None] = OrderedDict()

    def run(self, keys: Sequence[str]) -> Prefill:
        """Match the longest prefix, and store as much of the prompt as fits."""
        matched = sum(1 for _ in takewhile(self._held.__contains__, keys))
        for key in reversed(keys):
            self._held[key] = None
            self._held.move_to_end(key)
        removed = []
        while len(self._held) > self._capacity:
            removed.append(self._held.popitem(last=False)[0])
        return Prefill(matched, list(keys[matched:]), removed)


app = FastAPI()
cache = RadixCache(int(os.environ.get("CAPACITY", "1500")))


@app.post("/v1/chat/completions")
async def complete(chat: dict[str, Any]) -> dict[str, Any]:
    """Use the uuids of the chat, as the engine does, and return how many tokens were cached."""
    ids, images = tokenize(chat)
    items = [
        vllm.Span(image.part["uuid"], image.start, image.end - image.start) for image in images
    ]
    keys = [key.hex() for key in vllm.block_keys(ids, BLOCK_SIZE, items=items)]
    prefill = cache.run(keys)
    # The last token is always computed, because its logits are needed.
    cached = min(prefill.matched, (len(ids) - 1) // BLOCK_SIZE) * BLOCK_SIZE
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "…"}}],
        "usage": {
            "prompt_tokens": len(ids),
            "prompt_tokens_details": {"cached_tokens": cached},
        },
        "system_fingerprint": str(os.getpid()),  # the worker that answered
        "kv_events": {"stored": prefill.stored, "removed": prefill.removed},
    }
