"""Requests sent without waiting for responses, to pile up, or to hide that the client has left.

At most 32 requests wait on a connection, and its end is noticed behind them.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest

from tests.support.gateway import EngineProcess, gateway_before
from tests.support.service import Service
from tests.support.victim import flood
from tests.support.waiting import wait_until

CALL = b"GET /version HTTP/1.1\r\nHost: test\r\n\r\n"
MIB = 1 << 20


def test_a_flood_is_cut_off(server: Any) -> None:
    before = server.memory()
    with server.connect() as connection:
        reader = Thread(target=_read_all, args=(connection,))
        reader.start()
        flood(connection, CALL * 10_000, count=1000)
        reader.join()
    assert server.memory() - before < 64 * MIB


def _read_all(connection: socket.socket) -> None:
    try:
        while connection.recv(65536):
            pass
    except OSError:
        pass


def test_a_few_calls_at_once_are_all_answered(server: Any) -> None:
    last = CALL.replace(b"Host", b"Connection: close\r\nHost")
    answer = server.send_raw(CALL * 31 + last)
    assert answer.count(b"HTTP/1.1 200 ") == 32


def _post(body: bytes) -> bytes:
    return b"POST /generate HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@pytest.fixture(scope="module")
def gateway(worker: EngineProcess) -> Iterator[Service]:
    with gateway_before([worker.url], settings={"timeout_s": "1"}) as service:
        yield service


PROMPT = _post(b'{"mode": "hang"}')


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (PROMPT + CALL, b""),
        (PROMPT, CALL),
        (PROMPT, _post(b"x" * (1 << 20))),
        (PROMPT, _post(b"x" * (1 << 20))[: 1 << 19]),
    ],
    ids=["at once", "later", "a long one", "half of a long one"],
)
def test_a_client_that_leaves_has_no_request_computed(
    gateway: Service, worker: EngineProcess, first: bytes, then: bytes
) -> None:
    """A server that reads no more of a connection does not notice that it is gone."""
    before = worker.state()
    with gateway.connect() as connection:
        connection.sendall(first)
        wait_until(lambda: len(worker.state()["seen"]) > len(before["seen"]))
        connection.settimeout(1)
        with suppress(TimeoutError):  # it reads no more
            connection.sendall(then)
        time.sleep(0.1)  # so that the gateway may have read them
    wait_until(lambda: worker.state()["aborted"] == before["aborted"] + 1)
    with gateway.new_client() as client:
        wait_until(lambda: client.get("/workers").json()["workers"][0]["requests"] == 0)
