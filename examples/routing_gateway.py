"""A gateway that sends each chat to the worker whose cache holds its longest prefix.

mmhash puts the keys of the images into the chat, as vLLM's `uuid`s, and computes the block keys of
the prompt. A worker reports the blocks that it holds by KV events; here its responses carry them.

MMHASH=http://127.0.0.1:8780 WORKERS=http://one:8000,http://two:8000 \
    python -m uvicorn examples.routing_gateway:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import httpx
from fastapi import FastAPI

from examples.stand_in_tokenizer import tokenize
from mmhash.client import AsyncClient, Span


@dataclass
class Worker:
    """An engine: the blocks in its cache, and the number of chats in progress."""

    url: str
    held: set[str] = field(default_factory=set)
    load: int = 0

    def prefix(self, blocks: list[str]) -> int:
        """Return how many of the first blocks are in the cache."""
        return sum(1 for _ in takewhile(self.held.__contains__, blocks))


WORKERS = [Worker(url) for url in os.environ["WORKERS"].split(",")]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep connections open while the gateway runs."""
    async with AsyncClient(os.environ["MMHASH"]) as mmhash, httpx.AsyncClient(timeout=60) as http:
        app.state.mmhash, app.state.http = mmhash, http
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/v1/chat/completions")
async def complete(chat: dict[str, Any]) -> Any:
    """Forward a chat to the worker with its longest cached prefix, then to the least loaded."""
    mmhash, http = app.state.mmhash, app.state.http
    chat, items = await mmhash.annotate(chat, engine="vllm")
    ids, images = tokenize(chat)
    spans = [
        Span(image.start, image.end, item.key) for image, item in zip(images, items, strict=True)
    ]
    blocks = await mmhash.blocks(ids, 16, engine="vllm", spans=spans)
    worker = min(
        WORKERS, key=lambda worker: (-worker.prefix(blocks.blocks), worker.load, len(worker.held))
    )
    worker.load += 1
    try:
        response = await http.post(f"{worker.url}/v1/chat/completions", json=chat)
    finally:
        worker.load -= 1
    answer = response.raise_for_status().json()
    worker.held |= set(answer["kv_events"]["stored"])
    worker.held -= set(answer["kv_events"]["removed"])
    return answer
