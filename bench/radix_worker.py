"""A worker that stands in for vLLM: it answers nothing of interest, but caches as the engine does.

CAPACITY=1500 python -m uvicorn bench.radix_worker:app
"""

import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from fastapi import FastAPI

from examples.stand_in_tokenizer import tokenize
from mmhash.engines import vllm

BLOCK_SIZE = 16


class Prefill(NamedTuple):
    """How many blocks of a prompt were cached, and what of the cache changed."""

    matched: int
    stored: list[str]
    removed: list[str]


class RadixCache:
    """The blocks of prompts, by their keys; of more than `capacity` the least recent leaf goes.

    It is a radix tree without nodes: a key is bound to those before it, so it says its own path.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        # The least recent first. A block is never less recent than those behind it.
        self._held: OrderedDict[str, None] = OrderedDict()

    def run(self, keys: Sequence[str]) -> Prefill:
        """Match the longest prefix, and keep all of the prompt that there is room for."""
        matched = next((at for at, key in enumerate(keys) if key not in self._held), len(keys))
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
    """Go by the uuids that the chat carries, as the engine does, and say what was cached."""
    ids, images = tokenize(chat)
    items = [vllm.Span(at.part["uuid"], at.start, at.end - at.start) for at in images]
    keys = [key.hex() for key in vllm.block_keys(ids, BLOCK_SIZE, items=items)]
    found = cache.run(keys)
    # The last token is always computed, for its logits are wanted.
    cached = min(found.matched, (len(ids) - 1) // BLOCK_SIZE) * BLOCK_SIZE
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "…"}}],
        "usage": {
            "prompt_tokens": len(ids),
            "prompt_tokens_details": {"cached_tokens": cached},
        },
        "system_fingerprint": str(os.getpid()),  # whose answer it is
        "kv_events": {"stored": found.stored, "removed": found.removed},
    }
