"""Simulated workers over real sockets: servers that behave like vLLM's, without a model.

Each worker is a process. Its cache evicts blocks as vLLM does. It computes one prompt after another
at a fixed speed, generates replies meanwhile, and publishes KV events with replays. Like vLLM, it
sends the head of a stream at once.
"""

import asyncio
import json
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import Any, NamedTuple

import httpx
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from bench.fleet.replay import user_of
from bench.fleet.simulation import LruCache, Speed
from bench.fleet.traces import BLOCK_SIZE, ENGINE, RELEASE
from bench.fleet.workers import MODEL, Counters
from bench.support.servers import free_port
from bench.trace import records as trace
from bench.trace.content import openai_request
from mmhash.prompts import Model, Plan
from tests.live.environments import Environment
from tests.support.kv_publisher import Publisher, removed, stored

NAME = "tiny"
SPELLING = f"{ENGINE}@{RELEASE}"

# The gateway forwards requests without names for their images, so the plans use vLLM's own.
_NAMED: dict[str, Any] = {"block_size": BLOCK_SIZE, "hashes": "engine"}

_FORK = multiprocessing.get_context("fork")  # the processes share the plans


class Target(NamedTuple):
    """What a router needs to know about a worker, simulated or real."""

    url: str
    events: str
    replay: str
    engine: str
    block_size: int
    model: str
    """The directory of the model that all workers serve."""


class _Chat(msgspec.Struct):
    """The members of a request that a worker reads."""

    user: str = ""
    max_tokens: int = 0
    max_completion_tokens: int = 0
    """The newer name of `max_tokens`, which sglang-router sends."""


_CHAT = msgspec.json.Decoder(_Chat)


class Plans(NamedTuple):
    """The plans of requests, by `user`. They are made in advance, to leave the CPU to routers."""

    model: Model
    by_user: Mapping[str, Plan]

    def find(self, chat: _Chat, body: bytes) -> Plan:
        """Return the plan of a request, even if sglang-router has dropped its `user`."""
        plan = self.by_user.get(chat.user)
        return plan or self.model.plan(json.loads(body), SPELLING, **_NAMED)


class _Server:
    """The application of one worker."""

    def __init__(self, plans: Plans, publisher: Publisher, cache_tokens: int, speed: Speed) -> None:
        self._plans, self._publisher, self._speed = plans, publisher, speed
        self._cache = LruCache(cache_tokens // BLOCK_SIZE)
        self._computing = asyncio.Lock()
        self._waiting = self._running = 0
        self._prompt_tokens = self._cached_tokens = 0

    def app(self) -> Starlette:
        """Return the application."""
        chat = "/v1/chat/completions"
        return Starlette(
            routes=[
                Route(chat, self._chat, methods=["POST"]),
                Route(f"{chat}/render", self._render, methods=["POST"]),
                Route("/tokenize", self._tokenize, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/version", lambda _: JSONResponse({"version": RELEASE})),
                Route("/metrics", self._metrics),
                Route("/health", lambda _: Response()),
            ]
        )

    async def _plan(self, request: Request) -> tuple[_Chat, Plan]:
        body = await request.body()
        chat = _CHAT.decode(body)
        return chat, self._plans.find(chat, body)

    async def _chat(self, request: Request) -> Response:
        chat, plan = await self._plan(request)
        reply_tokens = chat.max_tokens or chat.max_completion_tokens
        return StreamingResponse(self._reply(plan, reply_tokens), media_type="text/event-stream")

    async def _reply(self, plan: Plan, reply_tokens: int) -> AsyncIterator[bytes]:
        blocks, tokens = plan.event_ids, len(plan.token_ids)
        self._waiting += 1
        async with self._computing:
            self._waiting -= 1
            hits, new, evicted = self._cache.start(blocks, 1 + reply_tokens // BLOCK_SIZE)
            # An engine always computes the last token of a prompt.
            cached = BLOCK_SIZE * min(hits, (tokens - 1) // BLOCK_SIZE)
            self._running += 1
            await asyncio.sleep((tokens - cached) / self._speed.tokens_per_s)
        try:
            self._publish(plan, hits, new, evicted)
            self._prompt_tokens += tokens
            self._cached_tokens += cached
            yield _event(choices=[{"index": 0, "delta": {"role": "assistant", "content": "a"}}])
            await asyncio.sleep(reply_tokens * self._speed.reply_token_s)
            usage = {
                "prompt_tokens": tokens,
                "completion_tokens": reply_tokens,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            yield _event(choices=[], usage=usage) + b"data: [DONE]\n\n"
        finally:
            self._running -= 1
            self._cache.end(blocks)

    def _publish(self, plan: Plan, hits: int, new: list[int], evicted: list[int]) -> None:
        events = [removed(*evicted)] if evicted else []
        if new:
            parent = plan.event_ids[hits - 1] if hits else None
            tokens = plan.token_ids[hits * BLOCK_SIZE : (hits + len(new)) * BLOCK_SIZE]
            names = {"parent_block_hash": parent, "token_ids": tokens, "block_size": BLOCK_SIZE}
            events.append(stored(*new) | names)
        if events:
            self._publisher.publish(*events, time=time.time())

    async def _render(self, request: Request) -> Response:
        _, plan = await self._plan(request)
        places = [{"offset": one.start, "length": one.end - one.start} for one in plan.items]
        features = {
            "mm_hashes": {"image": [one.key.hex() for one in plan.items]},
            "mm_placeholders": {"image": places},
            "kwargs_data": None,
        }
        rendered = {"request_id": "r", "token_ids": plan.token_ids, "model": NAME}
        return JSONResponse(rendered | {"features": features if plan.items else None})

    async def _tokenize(self, request: Request) -> Response:
        _, plan = await self._plan(request)
        count = len(plan.token_ids)
        return JSONResponse({"tokens": plan.token_ids, "count": count, "max_model_len": 4096})

    async def _models(self, _request: Request) -> Response:
        listed = {"id": NAME, "object": "model", "owned_by": "vllm", "max_model_len": 4096}
        return JSONResponse({"object": "list", "data": [listed]})

    async def _metrics(self, _request: Request) -> Response:
        values = {
            "cached_blocks": len(self._cache),
            "num_requests_running": self._running,
            "num_requests_waiting": self._waiting,
            "prompt_tokens_total": self._prompt_tokens,
            "prompt_tokens_cached_total": self._cached_tokens,
        }
        lines = [f'vllm:{name}{{model_name="{NAME}"}} {one}' for name, one in values.items()]
        return PlainTextResponse("\n".join(lines) + "\n")


def _event(**members: Any) -> bytes:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": NAME}
    return b"data: %b\n\n" % json.dumps(chunk | members).encode()


class SimulatedWorker:
    """A worker's process, which can be killed and started again with an empty cache."""

    def __init__(self, plans: Plans, folder: str, cache_tokens: int, speed: Speed) -> None:
        self._plans, self._cache_tokens, self._speed = plans, cache_tokens, speed
        self._ports = free_port(), free_port(), free_port()
        url, events, replay = (f"127.0.0.1:{port}" for port in self._ports)
        self.target = Target(
            f"http://{url}", f"tcp://{events}", f"tcp://{replay}", SPELLING, BLOCK_SIZE, folder
        )
        # Fork the replacement now, because forking is unsafe once this process has threads.
        self._processes = deque(self._fork() for _ in range(2))

    def _fork(self) -> tuple[BaseProcess, Event]:
        may_start = _FORK.Event()
        process = _FORK.Process(target=self._serve, args=(may_start,), daemon=True)
        process.start()
        return process, may_start

    def start(self) -> None:
        """Start to serve with an empty cache. This works once more after `kill`."""
        self._processes[0][1].set()

    def _serve(self, may_start: Event) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        may_start.wait()
        port, events, replay = self._ports
        with Publisher(events, replay) as publisher:
            server = _Server(self._plans, publisher, self._cache_tokens, self._speed)
            uvicorn.run(server.app(), port=port, log_level="error")

    def wait(self) -> None:
        """Wait until the worker answers."""
        while True:
            try:
                httpx.get(f"{self.target.url}/health", timeout=60, trust_env=False)
            except httpx.TransportError:
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """Kill the process at once."""
        process, _ = self._processes.popleft()
        process.kill()
        process.join()

    def close(self) -> None:
        """End the worker's processes."""
        while self._processes:
            self.kill()

    def counters(self) -> Counters:
        """Return how many tokens the worker has received since its start, and had cached."""
        return Counters(*self._metrics()[-2:])

    def blocks(self) -> int:
        """Return how many blocks the worker's cache holds."""
        return self._metrics()[0]

    def _metrics(self) -> list[int]:
        text = httpx.get(f"{self.target.url}/metrics", timeout=60, trust_env=False).text
        return [int(line.rpartition(" ")[2]) for line in text.splitlines()]


def plan_all(requests: Sequence[trace.Request]) -> Plans:
    """Return the plans of requests, as vLLM would compute them."""
    model = Model.load(Environment(ENGINE, RELEASE).model(MODEL))
    plans = {
        user_of(one): model.plan(openai_request(one, NAME, letters_per_token=1), SPELLING, **_NAMED)
        for one in requests
    }
    return Plans(model, plans)


@contextmanager
def simulated(
    plans: Plans, speeds: Sequence[Speed], cache_tokens: int
) -> Iterator[list[SimulatedWorker]]:
    """Run a worker for each speed."""
    folder = str(Environment(ENGINE, RELEASE).model(MODEL))
    with ExitStack() as stack:
        workers = [SimulatedWorker(plans, folder, cache_tokens, speed) for speed in speeds]
        for worker in workers:
            worker.start()
            stack.callback(worker.close)
        for worker in workers:
            worker.wait()
        yield workers
