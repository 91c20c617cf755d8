"""The trace without reuse over real sockets, with **simulated** engines of a fixed speed.

    python -m bench.fleet.timed [--rounds 4]

Two servers of this machine compute one prompt after another, each token in the same time, and
cache nothing. They take no CPU time, so that what differs between policies is the placement. Each
policy has a gateway of its own; all of them, and the placement of each request, are real.
"""

import argparse
import asyncio
import base64
import json
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from io import BytesIO
from typing import Any

import httpx
import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bench.fleet.gateway import POLICIES
from bench.fleet.replay import replay
from bench.fleet.simulation import DEFAULT_SPEED
from bench.fleet.traces import BLOCK_SIZE, ENGINE, RELEASE, TRACES
from bench.fleet.workers import MODEL
from bench.support.servers import running
from bench.trace.workload import renamed
from tests.live.environments import Environment

_PIXELS_OF_TOKEN = 28 * 28


def prompt_tokens(body: dict[str, Any]) -> int:
    """Return about as many tokens as the tiny model has for a chat: one for each letter."""
    tokens = 0
    for part in (part for message in body["messages"] for part in message["content"]):
        if part["type"] == "text":
            tokens += len(part["text"])
        else:
            _, _, content = part["image_url"]["url"].partition(",")
            width, height = Image.open(BytesIO(base64.b64decode(content))).size
            tokens += width * height // _PIXELS_OF_TOKEN
    return tokens


def engine() -> Starlette:
    """Return a simulated engine."""
    computing = asyncio.Lock()

    async def chat(request: Request) -> Response:
        body = await request.json()
        tokens = prompt_tokens(body)

        async def events() -> AsyncIterator[bytes]:
            async with computing:
                await asyncio.sleep(tokens / DEFAULT_SPEED.tokens_per_s)
            yield b'data: {"choices": []}\n\n'
            await asyncio.sleep(body["max_tokens"] * DEFAULT_SPEED.reply_token_s)
            yield b"data: %b\n\n" % json.dumps({"usage": {"prompt_tokens": tokens}}).encode()

        return StreamingResponse(events(), media_type="text/event-stream")

    async def health(_request: Request) -> Response:
        return Response()

    return Starlette(
        routes=[Route("/v1/chat/completions", chat, methods=["POST"]), Route("/health", health)]
    )


def main() -> None:
    """Print the times of each policy, the mean of the rounds; the policies take turns."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet.timed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="each has another seed")
    rounds = parser.parse_args().rounds
    models = json.dumps({"tiny": str(Environment(ENGINE, RELEASE).model(MODEL))})
    found: dict[str, list[tuple[float, ...]]] = {policy: [] for policy in POLICIES}
    with ExitStack() as stack:
        words = ["--set", f"models={models}"]
        for _ in range(2):
            url = stack.enter_context(running("bench.fleet.timed"))
            words += ["--worker", f"{url},engine={ENGINE}@{RELEASE},block_size={BLOCK_SIZE}"]
        for number in range(rounds):
            requests = TRACES["servegen, no reuse"].with_seed(number).requests()
            first = number % len(POLICIES)
            for policy in (*POLICIES[first:], *POLICIES[:first]):
                own = renamed(requests, f"{policy}-{number}-")
                with running("mmhash", "gateway", *words, "--policy", policy) as url:
                    # The self-test takes a second, and the first requests would wait for it.
                    httpx.get(f"{url}/ready", timeout=60, trust_env=False).raise_for_status()
                    answers = replay(url, own)
                times = [1e3 * one.first_token_s for one in answers]
                cuts = statistics.quantiles(times, n=100, method="inclusive")
                found[policy].append((statistics.fmean(times), cuts[49], cuts[98]))
    print("| policy | time to first token, mean | p50 | p99 |\n| --- | ---: | ---: | ---: |")
    for policy, runs in found.items():
        means = [statistics.fmean(column) for column in zip(*runs, strict=True)]
        print(f"| {policy} | {' | '.join(f'{one:.0f} ms' for one in means)} |")


if __name__ == "__main__":
    if "--port" in sys.argv:
        uvicorn.run(engine(), port=int(sys.argv[-1]), access_log=False)
    else:
        main()
