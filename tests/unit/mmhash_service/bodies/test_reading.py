"""Bodies that are too long, too slow or too many are refused, and hold nothing afterwards."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from mmhash_service.bodies.reading import MIN_PROGRESS, StallTimer
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.images import encode_noise
from tests.support.in_process import running
from tests.support.responses import problem_of

RAW = {"content-type": "application/octet-stream"}
HEAD = (
    b"POST /hash HTTP/1.1\r\nHost: test\r\nConnection: close\r\n"
    b"Content-Type: application/octet-stream\r\n"
)


def pieces(total: int) -> Iterator[bytes]:
    """A body of no declared length: httpx sends it chunked."""
    for start in range(0, total, 65536):
        yield bytes(min(65536, total - start))


@pytest.fixture
def limit(server: Any) -> int:
    return server.uvicorn.config.app.state.resources.settings.max_body_bytes


def test_a_body_of_the_limit_is_read(client: httpx.Client, limit: int) -> None:
    assert client.post("/hash", content=bytes(limit), headers=RAW).status_code == 200
    assert client.post("/hash", content=pieces(limit), headers=RAW).status_code == 200


def test_a_declared_length_over_the_limit_is_refused(client: httpx.Client, limit: int) -> None:
    answer = client.post("/hash", content=bytes(limit + 1), headers=RAW)
    assert answer.status_code == 413
    assert answer.json()["type"] == "urn:mmhash:problem:body-too-large"


def test_a_declared_length_over_the_limit_is_refused_before_the_body_comes(server: Any) -> None:
    answer = server.send_raw(HEAD + b"Content-Length: 9223372036854775807\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_client_that_expects_100_continue_is_refused_at_once(server: Any) -> None:
    answer = server.send_raw(
        HEAD + b"Expect: 100-continue\r\nContent-Length: 9223372036854775807\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_over_the_limit_is_refused(client: httpx.Client, limit: int) -> None:
    answer = client.post("/hash", content=pieces(limit + 1), headers=RAW)
    assert answer.status_code == 413
    assert answer.json()["type"] == "urn:mmhash:problem:body-too-large"


def begin(server: Any, stack: ExitStack, body: bytes = b"half") -> socket.socket:
    """A call of which only the head and a part of the body have come."""
    connection = stack.enter_context(socket.create_connection(server.address, timeout=60))
    connection.sendall(HEAD + b"Content-Length: 9000\r\nExpect: 100-continue\r\n\r\n")
    assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")  # it has been admitted
    connection.sendall(body)
    return connection


def test_a_body_that_comes_by_the_byte_is_refused() -> None:
    with (
        running(create_app(Settings(decoders=1, timeout_s=0.3))) as server,
        ExitStack() as stack,
    ):
        connection = begin(server, stack, bytes(MIN_PROGRESS))
        connection.settimeout(0.01)
        answer = b""
        while not answer:  # read first: after the answer, nothing more can be sent
            try:
                answer = connection.recv(65536)
            except TimeoutError:
                connection.sendall(b"x")
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_body_that_comes_in_time_is_read_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The timer runs once after each piece, whatever the pace of the machine."""
    timers: list[StallTimer] = []
    enter = StallTimer.__enter__

    def note(timer: StallTimer) -> StallTimer:
        timers.append(timer)
        return enter(timer)

    monkeypatch.setattr(StallTimer, "__enter__", note)
    with running(create_app(Settings(decoders=1, timeout_s=60))) as server:

        def pieces() -> Iterator[bytes]:
            for number in range(1, 16):
                yield bytes(4096)
                while not timers or timers[0]._length < number * 4096:
                    time.sleep(0.001)
                timers[0]._loop.call_soon_threadsafe(timers[0].on_timer)
                while timers[0]._last_length < number * 4096:
                    time.sleep(0.001)

        answer = server.client.post("/hash", content=pieces(), headers=RAW)
    assert answer.json()["items"][0]["nbytes"] == 15 * 4096


def test_beyond_the_limit_calls_are_refused_until_there_is_room() -> None:
    app = create_app(Settings(decoders=1, max_held_bytes=1 << 20))
    with running(app) as server, ExitStack() as stack:
        connections = [begin(server, stack) for _ in range(4)]
        answer = server.client.post("/hash", content=b"abc", headers=RAW)
        assert problem_of(answer) == (429, "busy")
        assert int(answer.headers["retry-after"]) >= 1
        assert server.client.get("/health").status_code == 200
        for connection in connections:
            connection.close()
        server.wait_until_idle()
        assert (app.state.resources.limits.calls, app.state.resources.limits.held) == (0, 0)
        assert server.client.post("/hash", content=b"abc", headers=RAW).status_code == 200


def test_a_buffered_body_counts_as_it_arrives() -> None:
    app = create_app(Settings(decoders=1, max_held_bytes=1 << 20))
    with running(app) as server:
        answer = server.client.post(
            "/hash?of=pixels", content=pieces(1 << 20), headers={"content-type": "image/png"}
        )
        assert problem_of(answer) == (413, "body-too-large")  # there will never be room
        server.wait_until_idle()
        assert app.state.resources.limits.held == 0


def test_an_image_that_takes_too_long_is_given_up() -> None:
    app = create_app(Settings(decoders=1))
    app.state.resources.memo._timeout_s = 0.001
    body = encode_noise("PNG", size=(800, 800))
    with running(app) as server:
        answer = server.client.post(
            "/hash?of=pixels", content=body, headers={"content-type": "image/png"}
        )
    assert problem_of(answer) == (503, "too-slow")
    assert "retry-after" in answer.headers
