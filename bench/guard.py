"""Measures the time that the guard adds to a request, and the event loop's longest wait.

The same app runs with the guard and without it, in one process and without a network.
"""

import asyncio
import base64
import json
import os
import statistics
import time
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

import mmhash
from bench.support.measure import Row, medians, report
from mmhash import Digest, sign_tag
from mmhash.engines import sglang, vllm
from mmhash_service.guard import Guard

SECRET = bytes(range(32))
KEYS = [mmhash.key(bytes([number])) for number in range(4)]
PROMPT = "Compare the pictures, and say what has changed between them. " * 40
PIECE = 64 << 10
TICK = 0.001


async def engine(_scope: Scope, receive: Receive, send: Send) -> None:
    """Read the body and send an empty response, which is the least that an engine does."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def chat(
    request_fields: Callable[[Digest], dict[str, str]], url: str = "https://p.example/{}.png"
) -> Any:
    """Return a chat request with one picture for each key."""
    parts = [
        {"type": "image_url", "image_url": {"url": url.format(number)}, **request_fields(key)}
        for number, key in enumerate(KEYS)
    ]
    content = [{"type": "text", "text": PROMPT}, *parts]
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": content}]
    return {"model": "m", "messages": messages, "temperature": 0.7, "max_tokens": 512}


def with_uuid(key: Digest) -> dict[str, str]:
    """Return the field that vLLM reads."""
    return {"uuid": vllm.uuid(key)}


def tagged(request: Any, engine: str) -> Any:
    """Return the request with a tag for each key."""
    soon = int(time.time()) + 3600
    return request | {
        "mmhash_tags": [
            sign_tag(key, engine=engine, tenant=None, expires=soon, secrets=[SECRET])
            for key in KEYS
        ]
    }


def cut(body: bytes) -> list[bytes]:
    """Return the pieces in which uvicorn passes a body."""
    return [body[start : start + PIECE] for start in range(0, len(body), PIECE)]


def request_to(app: ASGIApp, pieces: list[bytes]) -> Any:
    """Return one request, as a coroutine."""
    headers = [
        (b"host", b"engine.example"),
        (b"content-type", b"application/json"),
        (b"content-length", str(sum(map(len, pieces))).encode()),
    ]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}

    messages = iter(
        {"type": "http.request", "body": piece, "more_body": number < len(pieces)}
        for number, piece in enumerate(pieces, 1)
    )

    async def receive() -> Message:
        return next(messages)

    async def send(_message: Message) -> None:
        pass

    return app(scope, receive, send)


def run_without_loop(app: ASGIApp, pieces: list[bytes]) -> None:
    """Run a request without an event loop, which would take longer than the request itself."""
    try:
        request_to(app, pieces).send(None)
    except StopIteration:
        return
    raise AssertionError("the request waited")


def row(what: str, request: Any, name: str = "vllm", target: str = "<= 50") -> Row:
    """Measure the time that the guard adds to a request."""
    guard = Guard(engine, engine=name, secrets=[SECRET.hex()])
    body = json.dumps(request).encode()
    pieces = cut(body)
    with_it, without = medians(
        lambda: run_without_loop(guard, pieces),
        lambda: run_without_loop(engine, pieces),
        rounds=301,
        loops=10,
    )
    what = f"{what}, {len(body) / 1000:.1f} kB"
    return Row(what, (with_it - without) * 1e6, "us", "the app only", without * 1e6, target=target)


async def long_rows() -> list[Row]:
    """Measure a body of 20 MiB: its time, and the longest wait of the event loop."""
    guard = Guard(engine, engine="vllm", secrets=[SECRET.hex()])
    data = base64.b64encode(os.urandom(15 << 18)).decode()
    request = chat(with_uuid, "data:image/png;base64," + data)
    body = json.dumps(tagged(request, "vllm")).encode()
    pieces = cut(body)
    times, waits, idle = [], [], []
    for _ in range(21):
        start = time.perf_counter()
        waits.append(await longest_wait(request_to(guard, pieces)))
        times.append(time.perf_counter() - start)
        idle.append(await longest_wait(asyncio.sleep(times[-1])))
    what = f"{len(body) >> 20} MiB of data: URLs"
    taken, wait, peer = (statistics.median(values) * 1e3 for values in (times, waits, idle))
    return [
        Row(f"{what}, tagged", taken, "ms"),
        Row("the loop's longest wait meanwhile", wait, "ms", "an idle loop's", peer, target="< 5"),
    ]


async def longest_wait(done: Coroutine[Any, Any, None]) -> float:
    """Return the longest delay of the event loop until a coroutine is done."""
    longest, last = 0.0, time.perf_counter()
    task = asyncio.create_task(done)
    while not task.done():
        await asyncio.sleep(TICK)
        now = time.perf_counter()
        longest, last = max(longest, now - last - TICK), now
    return longest


def rows() -> list[Row]:
    """Measure requests as a gateway forwards them."""
    images = [f"https://p.example/{number}.png" for number in range(len(KEYS))]
    generate = {
        "text": PROMPT * 2,
        "image_data": images,
        "mm_hashes": [sglang.mm_hash(key) for key in KEYS],
        "sampling_params": {"temperature": 0.7, "max_new_tokens": 512},
    }
    return [
        row("chat, 4 images, tagged", tagged(chat(with_uuid), "vllm")),
        row("chat, 4 images, uuids without tags", chat(with_uuid)),
        row("chat, 4 images, no uuids", chat(lambda _key: {})),
        row("/generate, 4 images, tagged", tagged(generate, "sglang"), "sglang"),
        *asyncio.run(long_rows()),
    ]


if __name__ == "__main__":
    report("guard", rows())
