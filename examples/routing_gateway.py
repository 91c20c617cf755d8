r"""A gateway that sends each chat to the vLLM worker whose cache has its longest prefix.

One call of mmhash plans the chat: it returns the block keys of the prompt, and the chat with its
images' keys. The workers' KV events show which blocks each worker has. `mmhash gateway` does the
same with more policies, limits and metrics. This file shows the core.

MMHASH=http://127.0.0.1:8780 MODEL=qwen2-vl BLOCK_SIZE=16 \
    WORKERS=http://one:8000,tcp://one:5557,http://two:8000,tcp://two:5557 \
    python -m uvicorn examples.routing_gateway:app
"""

import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI, Response

from mmhash.client import AsyncClient
from mmhash.kvindex import Index, Worker

_VARIABLES = ("MMHASH", "MODEL", "BLOCK_SIZE", "WORKERS")
if missing := [name for name in _VARIABLES if name not in os.environ]:
    _USAGE = (__doc__ or "").rpartition("\n\n")[2].strip()
    raise SystemExit(f"set {', '.join(missing)}:\n{_USAGE}")

_ADDRESSES = os.environ["WORKERS"].split(",")
WORKERS = [
    Worker(url, events) for url, events in zip(_ADDRESSES[::2], _ADDRESSES[1::2], strict=True)
]
LOAD: Counter[str] = Counter()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep connections and the index open while the gateway runs."""
    async with AsyncClient(os.environ["MMHASH"]) as mmhash, httpx.AsyncClient(timeout=60) as http:
        with Index(WORKERS) as index:
            app.state.mmhash, app.state.http, app.state.index = mmhash, http, index
            yield


app = FastAPI(lifespan=lifespan)


@app.post("/v1/chat/completions")
async def complete(chat: dict[str, Any]) -> Response:
    """Forward a chat to the worker with its longest cached prefix, or to the least loaded one."""
    state = app.state
    plan = await state.mmhash.plan(
        chat, model=os.environ["MODEL"], engine="vllm", block_size=int(os.environ["BLOCK_SIZE"])
    )
    matches = state.index.match(plan.event_ids)
    url = min(matches, key=lambda url: (-matches[url].tokens, LOAD[url]))
    LOAD[url] += 1
    try:
        response = await state.http.post(f"{url}/v1/chat/completions", json=plan.request)
    finally:
        LOAD[url] -= 1
    media_type = response.headers["content-type"]
    return Response(response.content, response.status_code, media_type=media_type)
