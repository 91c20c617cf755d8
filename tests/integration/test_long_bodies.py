"""The service receives long bodies without ASGI messages: keys, limits, pipelines, disconnects."""

import json
import os
import random
import socket
from collections.abc import Iterator
from typing import Self

import pytest
from blake3 import blake3

from tests.support.service import Service, serving

KIB = 1 << 10
BUFFER_BYTES = 256 * KIB
MIB = 1 << 20
MAX_BODY = 8 * MIB

# Lengths around the direct path's minimum, and around multiples of a buffer.
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
    body = b'{"items": [' + b" " * MIB  # refused at its end, when it is parsed
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
