"""Measures the delay that the gateway adds to a streamed request, next to a plain httpx proxy.

A local upstream streams a few events without a pause. A client on raw sockets measures the time to
the first byte and to the end: directly, through the gateway, and through the plain proxy. The three
take turns, so a busy moment of the machine affects them all. Then the CPU time of planned requests
is measured: for a text, and for images that the gateway has seen before.
"""

import base64
import io
import json
import random
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from bench.support.measure import Row, report
from bench.support.proxies import EVENTS
from bench.support.servers import Server, run_module
from tests.live import models

ROUNDS = 300

IMAGE_BYTES = (149_000, 366_000)

PROMPT = "The quick brown fox jumps over the lazy dog. " * 100


class Times(NamedTuple):
    """The seconds until the first byte of the body, and until its end."""

    first: float
    all: float


def image_parts(nbytes: int) -> list[dict[str, Any]]:
    """Return the content of a message with an image of 640x640 pixels and a question."""
    file = io.BytesIO()
    Image.new("RGB", (640, 640)).save(file, "JPEG")
    jpeg = file.getvalue() + random.Random(nbytes).randbytes(nbytes - file.tell())
    url = "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()
    image = {"type": "image_url", "image_url": {"url": url}}
    return [image, {"type": "text", "text": "What is in this picture?"}]


def request(port: int, content: str | list[dict[str, Any]] = PROMPT) -> bytes:
    """Return a streamed chat as bytes."""
    messages = [{"role": "user", "content": content}]
    body = json.dumps({"model": "m", "stream": True, "messages": messages}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def measure(connection: socket.socket, text: bytes) -> Times:
    """Send a request, and read its chunked response to the end."""
    start = time.perf_counter()
    connection.sendall(text)
    received, first = b"", 0.0
    while not received.endswith(b"\r\n0\r\n\r\n"):
        received += connection.recv(65536)
        if not first and b"data: " in received:
            first = time.perf_counter() - start
    assert received.count(b"data: ") == EVENTS, received
    return Times(first, time.perf_counter() - start)


def rounds(ports: list[int]) -> Iterator[list[Times]]:
    """Yield the times of each server, in turn."""
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for port in ports
        ]
        for connection in connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        texts = [request(port) for port in ports]
        for number in range(ROUNDS + 30):
            times = [measure(*pair) for pair in zip(connections, texts, strict=True)]
            if number >= 30:
                yield times


def cpu_s(server: Server, content: str | list[dict[str, Any]]) -> float:
    """Return the CPU time of a server for one request."""
    text = request(server.port, content)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        measure(connection, text)
        used = server.cpu_s()
        for _ in range(ROUNDS):
            measure(connection, text)
        return (server.cpu_s() - used) / ROUNDS


def rows() -> list[Row]:
    """Measure with one request at a time."""
    contents = {"a short text": "What is in this picture?"} | {
        f"an image of {nbytes // 1000} kB": image_parts(nbytes) for nbytes in IMAGE_BYTES
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        models.write("qwen2_vl", folder)
        upstream = stack.enter_context(run_module("bench.support.proxies", "upstream", "0"))
        url = f"http://127.0.0.1:{upstream.port}"
        settings = "--set", f"models={json.dumps({'m': str(folder)})}"
        worker = "--worker", f"{url},engine=vllm@0.32.0"
        command = ("mmhash", "gateway", "--port", "0", *worker, *settings)
        gateway = stack.enter_context(run_module(*command))
        rewriting = stack.enter_context(run_module(*command, "--set", "gateway.hashes=key"))
        plain = stack.enter_context(run_module("bench.support.proxies", "plain", "0", url))
        times = list(rounds([upstream.port, gateway.port, plain.port]))
        cpu = [
            Row(
                f"CPU of {name}", 1e3 * cpu_s(gateway, content), "ms",
                "a plain httpx proxy", 1e3 * cpu_s(plain, content),
            )
            for name, content in contents.items()
        ]  # fmt: skip
        cpu += [
            Row(
                f"CPU of {name}, forwarded unchanged", 1e3 * cpu_s(gateway, content), "ms",
                "with a key put in", 1e3 * cpu_s(rewriting, content),
            )
            for name, content in list(contents.items())[1:]
        ]  # fmt: skip
    return [
        *cpu,
        row("added to the first byte", times, "first", "< 3"),
        row("added to the whole response", times, "all", "< 3"),
    ]


def row(what: str, times: list[list[Times]], name: str, target: str) -> Row:
    """Return the median delays that the gateway and the plain proxy add to a request."""
    straight, gateway, plain = (
        statistics.median(getattr(one[number], name) for one in times) * 1e3 for number in range(3)
    )
    what = f"{what}, {EVENTS} events, p50"
    return Row(
        what, gateway - straight, "ms", "a plain httpx proxy", plain - straight, target=target
    )


if __name__ == "__main__":
    report("gateway", rows())
