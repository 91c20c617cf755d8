"""Sends a trace at its arrival times, and reads the engines' answers."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import httpx

from bench.trace.content import openai_request
from bench.trace.records import Request

TIMEOUT_S = 300
MOST_FAILURES = 100
_PAUSE_S = 0.2

# This header names a request's first image, for routers that cannot hash part of a body.
IMAGE_HEADER = "x-first-image"


class Answer(NamedTuple):
    """The usage that an engine reported for a request, and the request's times."""

    prompt_tokens: int
    cached_tokens: int
    first_token_s: float
    seconds: float
    failures: int = 0
    """The number of failed attempts before this one. Their time counts."""


class FailedError(Exception):
    """A request got no response, so the figures of its trace would be wrong."""


def replay(
    url: str | Callable[[], str], trace: Sequence[Request], *, repeats: bool = False
) -> list[Answer]:
    """Send a trace to a gateway or engine. A turn waits for the response to the previous turn.

    If `url` is a function, it is called for each request. With `repeats`, failed requests are
    retried.
    """
    # One letter is one token of the tiny models.
    bodies = [
        openai_request(one, "tiny", letters_per_token=1) | {"user": user_of(one)} for one in trace
    ]
    sent = [json.dumps(one).encode() for one in bodies]
    where = url if callable(url) else lambda: url
    return asyncio.run(_replay(where, trace, sent, MOST_FAILURES if repeats else 0))


def user_of(request: Request) -> str:
    """Return the name of a request of a trace, which is its member `user`."""
    return f"{request.session}.{request.turn}"


async def _replay(
    url: Callable[[], str], trace: Sequence[Request], sent: list[bytes], most_failures: int
) -> list[Answer]:
    start = time.perf_counter()
    tasks: dict[tuple[str, int], asyncio.Task[Answer]] = {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(timeout=TIMEOUT_S, limits=limits, trust_env=False) as client:

        async def run(request: Request, body: bytes) -> Answer:
            await asyncio.sleep(start + request.at - time.perf_counter())
            if request.turn:
                await tasks[request.session, request.turn - 1]
            image = request.images[0].image if request.images else ""
            begin = time.perf_counter()
            for failures in count():
                try:
                    answer = await _send(client, url(), body, {IMAGE_HEADER: image}, begin)
                    return answer._replace(failures=failures)
                except (httpx.TransportError, FailedError):
                    if failures == most_failures:
                        raise
                    await asyncio.sleep(_PAUSE_S)
            raise AssertionError

        async with asyncio.TaskGroup() as group:
            for request, body in zip(trace, sent, strict=True):
                tasks[request.session, request.turn] = group.create_task(run(request, body))
    return [task.result() for task in tasks.values()]


async def _send(
    client: httpx.AsyncClient, url: str, body: bytes, headers: dict[str, str], start: float
) -> Answer:
    first = None
    usage: dict[str, Any] = {}
    headers |= {"content-type": "application/json"}
    async with client.stream(
        "POST", f"{url}/v1/chat/completions", content=body, headers=headers
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
