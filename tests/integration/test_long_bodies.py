"""Long bodies, which are received without ASGI messages: keys, limits, pipelines, disconnects."""

import json
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Self

import httpx
import pytest
import uvicorn
from blake3 import blake3

from mmhash_service.app import create_app
from mmhash_service.server.protocol import BoundedProtocol
from mmhash_service.settings import Settings
from tests.support.service import Service, serving

KIB = 1 << 10
BUFFER_BYTES = 256 * KIB
MIB = 1 << 20
MAX_BODY = 8 * MIB

# Below and above the length from which bodies are received directly, and around whole buffers.
LENGTHS = [
    1,
    127 * KIB,
    128 * KIB,
    128 * KIB + 1,
    BUFFER_BYTES - 1,
    BUFFER_BYTES,
    BUFFER_BYTES + 1,
    3 * BUFFER_BYTES + 12_345,
    5 * MIB + 7,
]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving(settings={"max_body_bytes": MAX_BODY}) as one:
        yield one


class Client:
    """A raw connection, whose writes can be cut anywhere."""

    def __init__(self, service: Service) -> None:
        self._socket = service.connect()
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, data: bytes, cuts: random.Random | None = None) -> None:
        while cuts is not None and len(data) > 1:
            end = cuts.choice([1, 100, 40_000, 300_000])
            self._socket.sendall(data[:end])
            data = data[end:]
        self._socket.sendall(data)

    def response(self) -> tuple[int, dict[str, object]]:
        status = int(self._file.readline().split()[1])
        length = 0
        while (line := self._file.readline().lower()) != b"\r\n":
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return status, json.loads(self._file.read(length) or b"{}")

    def key(self) -> object:
        status, answer = self.response()
        assert status == 200, answer
        items = answer["items"]
        assert isinstance(items, list)
        return items[0]["digest"]


def head(length: int | None, more: str = "", path: str = "/hash") -> bytes:
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
        f"{framing}\r\n{more}\r\n"
    ).encode()


def chunked(body: bytes, cuts: random.Random) -> bytes:
    parts = []
    while body:
        end = cuts.choice([1, 999, 65_536, 400_000])
        parts.append(b"%x\r\n%b\r\n" % (len(body[:end]), body[:end]))
        body = body[end:]
    return b"".join([*parts, b"0\r\n\r\n"])


def digest(body: bytes) -> str:
    return blake3(body).hexdigest()


@pytest.mark.parametrize("length", LENGTHS)
def test_the_key_is_that_of_the_whole_body(service: Service, length: int) -> None:
    body = os.urandom(length)
    with Client(service) as client:
        for cuts in (None, random.Random(length)):
            client.send(head(length) + body, cuts)
            assert client.key() == digest(body)
            client.send(head(None) + chunked(body, random.Random(length)), cuts)
            assert client.key() == digest(body)


def test_pipelined_bodies(service: Service) -> None:
    bodies = [os.urandom(length) for length in LENGTHS]
    with Client(service) as client:
        client.send(b"".join(head(len(body)) + body for body in bodies))
        assert [client.key() for _ in bodies] == [digest(body) for body in bodies]
        client.send(b"".join(head(None) + chunked(body, random.Random(1)) for body in bodies))
        assert [client.key() for _ in bodies] == [digest(body) for body in bodies]


def test_a_body_after_100_continue(service: Service) -> None:
    body = os.urandom(3 * MIB)
    with Client(service) as client:
        client.send(head(len(body), "Expect: 100-continue\r\n"))
        assert client._file.readline() == b"HTTP/1.1 100 Continue\r\n"
        client._file.readline()
        client.send(body)
        assert client.key() == digest(body)


@pytest.mark.parametrize("length", [None, MAX_BODY + MIB])
def test_a_body_above_the_limit_is_refused_and_the_next_one_hashed(
    service: Service, length: int | None
) -> None:
    body = bytes(MAX_BODY + MIB)
    content = body if length else chunked(body, random.Random(2))
    with Client(service) as client:
        client.send(head(length) + content)
        status, answer = client.response()
        assert status == 413, answer
        client.send(head(3) + b"abc")
        assert client.key() == digest(b"abc")


def test_an_error_within_a_long_body_leaves_the_connection_usable(service: Service) -> None:
    body = b'{"items": [' + b" " * MIB  # refused when it is parsed, at its end
    safetensors = (2**40).to_bytes(8, "little") + bytes(3 * MIB)  # refused at its beginning
    with Client(service) as client:
        kinds = ((body, b"application/json"), (safetensors, b"application/x-safetensors"))
        for content, kind in kinds:
            client.send(head(len(content)).replace(b"application/octet-stream", kind) + content)
            status, _ = client.response()
            assert status in {400, 422}
            client.send(head(MIB) + bytes(MIB))
            assert client.key() == digest(bytes(MIB))


def test_a_client_that_disconnects_within_a_body(service: Service) -> None:
    for sent in (0, 200 * KIB, 2 * MIB):
        with Client(service) as client:
            client.send(head(5 * MIB) + bytes(sent))
    with Client(service) as client:
        client.send(head(MIB) + bytes(MIB))
        assert client.key() == digest(bytes(MIB))


@pytest.mark.slow
def test_a_stalled_body_is_refused_and_a_slow_one_is_not() -> None:
    body, timeout_s = os.urandom(200 * KIB), 3
    with (
        serving(settings={"stall_timeout_s": timeout_s}) as service,
        Client(service) as stalled,
        Client(service) as slow,
    ):
        for client in (stalled, slow):
            client.send(head(len(body)) + body[: 190 * KIB])
        for start in range(190 * KIB, len(body), 2 * KIB):  # 1.25 times the time-out in all
            time.sleep(timeout_s / 4)
            slow.send(body[start : start + 2 * KIB])
        assert slow.key() == digest(body)
        status, _ = stalled.response()
        assert status == 408


@pytest.mark.slow
def test_event_loops_in_two_threads_of_one_process() -> None:
    bodies = [bytes([seed]) * (8 * MIB) for seed in range(4)]
    with running_directly() as one, running_directly() as two, ThreadPoolExecutor(4) as pool:

        def wrong(index: int) -> int:
            body = bodies[index]
            wanted = digest(body)
            headers = {"content-type": "application/octet-stream"}
            with httpx.Client(base_url=(one, two)[index % 2], timeout=60) as client:
                answers = [client.post("/hash", content=body, headers=headers) for _ in range(25)]
            return sum(answer.json()["items"][0]["digest"] != wanted for answer in answers)

        assert list(pool.map(wrong, range(4))) == [0, 0, 0, 0]


@contextmanager
def running_directly() -> Iterator[str]:
    """Run the application with the service's own protocol in a thread; yield its URL."""
    config = uvicorn.Config(
        create_app(Settings(decoders=1)),
        loop="uvloop",
        http=partial(BoundedProtocol, stall_timeout_s=30),  # type: ignore[arg-type]
        log_config=None,
    )
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()
