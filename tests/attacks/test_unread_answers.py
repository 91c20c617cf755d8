"""A client that requests long responses and reads none, so that they pile up in the server.

A response of which nothing is read in `timeout_s` is dropped, with its connection.
"""

import json
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.victim import flood, serving
from tests.support.waiting import wait_until

JSON = {"content-type": "application/json"}
HEAD = (
    b"POST /annotate?engine=vllm HTTP/1.1\r\nHost: test\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


def connect(server: Any) -> socket.socket:
    """Return a connection that holds few bytes that are not read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect(server.address)
    return connection


def request(length: int) -> bytes:
    body = json.dumps({"messages": [{"role": "user"}], "padding": "a" * length}).encode()
    return HEAD % len(body) + body


@pytest.mark.slow
def test_a_client_that_reads_nothing_is_disconnected(impatient: Any) -> None:
    with connect(impatient) as connection:
        flood(connection, request(3 << 20), count=1000)


def test_a_client_that_reads_slowly_gets_all(impatient: Any) -> None:
    with connect(impatient) as connection:
        connection.sendall(request(256 << 10).replace(b"Host", b"Connection: close\r\nHost"))
        answer = b"".join(iter(lambda: connection.recv(1024), b""))
    assert len(answer) > 256 << 10


# 13 MB: a block and an id for each token.
BLOCKS = json.dumps({"engine": "vllm", "block_size": 1, "input_ids": [1] * 140_000}).encode()


def ask_for_blocks(server: Any) -> socket.socket:
    connection = connect(server)
    connection.sendall(HEAD.replace(b"/annotate?engine=vllm", b"/blocks") % len(BLOCKS) + BLOCKS)
    return connection


def ask_until_answered(server: Any) -> None:
    """Ask until the server has noticed the closed connections and freed their responses."""
    wait_until(
        lambda: server.client.post("/blocks", content=BLOCKS, headers=JSON).status_code == 200
    )


@pytest.mark.slow
def test_long_answers_are_held_within_a_limit() -> None:
    """Clients that read slowly must not keep responses until the memory is used up."""
    with serving(max_held_bytes=30 << 20) as server, ExitStack() as readers:
        slow = [readers.enter_context(ask_for_blocks(server)) for _ in range(2)]
        assert [one.recv(12) for one in slow] == [b"HTTP/1.1 200"] * 2
        refused = readers.enter_context(ask_for_blocks(server))
        assert refused.recv(12) == b"HTTP/1.1 429"
        # Short responses are not affected.
        assert server.hash(b"abc").status_code == 200
        for one in slow:
            one.close()
        ask_until_answered(server)


@pytest.mark.slow
def test_an_answer_larger_than_the_limit_is_sent_alone() -> None:
    with serving(max_held_bytes=8 << 20) as server:
        answer = server.client.post("/blocks", content=BLOCKS, headers=JSON)
        assert len(answer.json()["blocks"]) == 140_000
