"""A gateway that sends each chat to the worker whose cache holds the longest prefix of it.

mmhash puts the images' keys into the chat, as vLLM's `uuid`s, and names the blocks of its prompt as
vLLM's cache does. Which of them a worker holds its KV events say; here they are in its answers.

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
from mmhash.client import AsyncClient, KeySpan


@dataclass
class Worker:
    """An engine: the blocks in its cache, and how many chats it is answering."""

    url: str
    held: set[str] = field(default_factory=set)
    load: int = 0

    def prefix(self, blocks: list[str]) -> int:
        """How many of the first blocks it holds."""
        return sum(1 for _ in takewhile(self.held.__contains__, blocks))


WORKERS = [Worker(url) for url in os.environ["WORKERS"].split(",")]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Have connections while the gateway runs."""
    async with AsyncClient(os.environ["MMHASH"]) as mmhash, httpx.AsyncClient(timeout=60) as http:
        app.state.mmhash, app.state.http = mmhash, http
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/v1/chat/completions")
async def complete(chat: dict[str, Any]) -> Any:
    """Forward a chat to where most of it is cached, or else to the least loaded."""
    mmhash, http = app.state.mmhash, app.state.http
    chat, items = await mmhash.annotate(chat, engine="vllm")
    ids, images = tokenize(chat)
    spans = [KeySpan(at.start, at.end, item.key) for at, item in zip(images, items, strict=True)]
    blocks = await mmhash.blocks(ids, 16, engine="vllm", spans=spans)
    worker = min(WORKERS, key=lambda it: (-it.prefix(blocks), it.load, len(it.held)))
    worker.load += 1
    try:
        sent = await http.post(f"{worker.url}/v1/chat/completions", json=chat)
    finally:
        worker.load -= 1
    answer = sent.raise_for_status().json()
    worker.held |= set(answer["kv_events"]["stored"])
    worker.held -= set(answer["kv_events"]["removed"])
    return answer
