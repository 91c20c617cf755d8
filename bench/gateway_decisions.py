"""Measures the time of a routing decision (plan, match and score) at a fixed rate of requests.

python -m bench.gateway_decisions [RATE]

A gateway on one core, with a model's files and an index of some workers, answers `POST /route`. The
client sends requests at fixed times, so a slow response delays no other request. The figures come
from the client, and from the core's CPU time.
"""

import asyncio
import base64
import io
import json
import os
import re
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from PIL import Image

from bench.support.measure import Row, report
from bench.support.servers import run_module
from mmhash.prompts import Model
from tests.live import models
from tests.support.kv_publisher import Publisher, stored

RATE = int(sys.argv[1]) if sys.argv[1:] else 200
SECONDS = 20
WARM_UP_S = 2  # in the first second, decoder processes start on the gateway's core
WORKERS = 8
ENGINE = "vllm@0.32.0"

WORDS = "The quick brown fox jumps over the lazy dog. "


def requests() -> list[bytes]:
    """Return chats with a text, some of them with an image of 50 kB."""
    messages = ([{"role": "user", "content": _content(number)}] for number in range(32))
    return [json.dumps({"model": "tiny", "messages": one}).encode() for one in messages]


def _content(number: int) -> list[dict[str, Any]]:
    text = {"type": "text", "text": f"{number}: " + WORDS * (4 + number)}
    if number % 2:
        return [text]
    noise = Image.effect_noise((448, 448), 40 + number)
    file = io.BytesIO()
    noise.convert("RGB").save(file, "JPEG", quality=80)
    url = "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
    return [{"type": "image_url", "image_url": {"url": url}}, text]


class _Connection(asyncio.Protocol):
    """A connection for one request at a time, which takes far less CPU time than httpx."""

    def __init__(self, idle: list["_Connection"]) -> None:
        self._idle = idle
        self._received = b""
        self._response: asyncio.Future[bytes]
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def connection_lost(self, _exc: Exception | None, /) -> None:
        if self in self._idle:  # the server closes idle connections after 5 s
            self._idle.remove(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, _, body = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None and len(body) == int(length[1]):
            self._received = b""
            self._idle.append(self)
            self._response.set_result(body)

    async def ask(self, body: bytes) -> bytes:
        """Return the body of the response."""
        head = "POST /route HTTP/1.1", "Host: b", "Content-Type: application/json"
        lines = "\r\n".join((*head, f"Content-Length: {len(body)}", "", ""))
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(lines.encode() + body)
        return await self._response


async def measure(port: int, bodies: list[bytes]) -> list[float]:
    """Send requests at fixed times. Return the seconds of each."""
    times: list[float] = []
    idle: list[_Connection] = []
    loop = asyncio.get_running_loop()

    async def ask(body: bytes) -> bytes:
        start = time.perf_counter()
        if idle:
            connection = idle.pop()
        else:
            _, connection = await loop.create_connection(
                lambda: _Connection(idle), "127.0.0.1", port
            )
        answer = await connection.ask(body)
        times.append(time.perf_counter() - start)
        return answer

    for body in bodies:  # compile the template, and fill the memo
        assert json.loads(await ask(body))["plan"] is not None
    for seconds in (WARM_UP_S, SECONDS):
        times.clear()
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(RATE * seconds):
                await asyncio.sleep(start + number / RATE - time.perf_counter())
                group.create_task(ask(bodies[number % len(bodies)]))
    return times


def rows() -> list[Row]:
    """Measure one gateway."""
    bodies = requests()
    cores = os.sched_getaffinity(0)
    core = {min(cores)}
    others = cores - core or core
    os.sched_setaffinity(0, others)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        models.write("qwen2_vl", folder)
        upstream = stack.enter_context(run_module("bench.support.proxies", "upstream", "0"))
        publishers = [stack.enter_context(Publisher()) for _ in range(WORKERS)]
        # The prefix of the URL keeps the workers apart: they share a server.
        workers = [
            f"http://127.0.0.1:{upstream.port}/{number},events={one.events},replay={one.replay},"
            f"engine={ENGINE}"
            for number, one in enumerate(publishers)
        ]
        named = [text for worker in workers for text in ("--worker", worker)]
        settings = ["--set", f"models={json.dumps({'tiny': str(folder)})}"]
        os.sched_setaffinity(0, core)  # the gateway inherits this, with its threads and decoders
        gateway = stack.enter_context(
            run_module("mmhash", "gateway", "--port", "0", *named, *settings)
        )
        os.sched_setaffinity(0, others)
        model = Model.load(folder)
        for number, body in enumerate(bodies):
            plan = model.plan(body, ENGINE)
            publishers[number % WORKERS].publish(stored(*plan.event_ids))
        used = gateway.cpu_s()
        times = sorted(asyncio.run(measure(gateway.port, bodies)))
        used = gateway.cpu_s() - used
        requests_sent = RATE * (WARM_UP_S + SECONDS)
    return [
        Row("one core, for each request to /route", 1e3 * used / requests_sent, "ms"),
        Row(f"POST /route, {RATE}/s, p50", 1e3 * statistics.median(times), "ms"),
        Row("POST /route, p99", 1e3 * times[int(0.99 * len(times))], "ms", target="< 5"),
    ]


if __name__ == "__main__":
    report("gateway-decisions", rows())
