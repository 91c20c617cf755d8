"""A trace sent at its arrival times, and the engines' answers."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx

from bench.trace.content import openai_request
from bench.trace.records import Request

TIMEOUT_S = 300


class Answer(NamedTuple):
    """The usage that an engine reported for a request, and how long it took."""

    prompt_tokens: int
    cached_tokens: int
    first_token_s: float
    seconds: float


class FailedError(Exception):
    """A request was not answered: the figures of its trace would be wrong."""


def replay(url: str, trace: Sequence[Request]) -> list[Answer]:
    """Send a trace to a gateway or engine; a turn also waits for the answer to the one before."""
    # One letter is one token of the tiny models.
    bodies = [openai_request(one, "tiny", letters_per_token=1) for one in trace]
    return asyncio.run(_replay(url, trace, [json.dumps(one).encode() for one in bodies]))


async def _replay(url: str, trace: Sequence[Request], sent: list[bytes]) -> list[Answer]:
    start = time.perf_counter()
    tasks: dict[tuple[str, int], asyncio.Task[Answer]] = {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(
        base_url=url, timeout=TIMEOUT_S, limits=limits, trust_env=False
    ) as client:

        async def run(request: Request, body: bytes) -> Answer:
            await asyncio.sleep(start + request.at - time.perf_counter())
            if request.turn:
                await tasks[request.session, request.turn - 1]
            return await _send(client, body)

        async with asyncio.TaskGroup() as group:
            for request, body in zip(trace, sent, strict=True):
                tasks[request.session, request.turn] = group.create_task(run(request, body))
    return [task.result() for task in tasks.values()]


async def _send(client: httpx.AsyncClient, body: bytes) -> Answer:
    start = time.perf_counter()
    first = None
    usage: dict[str, Any] = {}
    headers = {"content-type": "application/json"}
    async with client.stream(
        "POST", "/v1/chat/completions", content=body, headers=headers
    ) as response:
        if response.status_code != 200:
            raise FailedError(f"{response.status_code}: {(await response.aread())[:2000]!r}")
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                # Engines send the first event with the first token.
                first = first or time.perf_counter() - start
                event = json.loads(line.removeprefix("data: "))
                if "error" in event:
                    raise FailedError(line[:2000])
                usage = event.get("usage") or usage
    if first is None or not usage:
        raise FailedError("a stream without events, or without usage")
    details = usage.get("prompt_tokens_details") or {}
    cached = int(details.get("cached_tokens") or 0)
    return Answer(int(usage["prompt_tokens"]), cached, first, time.perf_counter() - start)
