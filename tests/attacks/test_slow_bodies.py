"""Bodies that arrive byte by byte, or not at all, to hold memory that other requests need.

A body that stalls gets 408. A body that nobody reads any more is cut off.
"""

import socket
from typing import Any

import pytest

from tests.support.responses import refusal_of
from tests.support.victim import flood

pytestmark = pytest.mark.slow

HEAD = b"POST /hash HTTP/1.1\r\nHost: test\r\nContent-Type: %b\r\n%b\r\n\r\n"
KINDS = [b"application/octet-stream", b"application/json", b"multipart/form-data; boundary=b"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_does_not_come_is_refused(impatient: Any, kind: bytes) -> None:
    head = HEAD % (kind, b"Transfer-Encoding: chunked")
    assert refusal_of(impatient.send_raw(head)) == "stalled-body"


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /live HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n",
        HEAD % (KINDS[0], b"Content-Length: 99999999"),
        HEAD % (b"text/plain", b"Content-Length: 99999999"),
    ],
)
def test_the_server_does_not_wait_for_a_body_after_its_answer(
    impatient: Any, request_: bytes
) -> None:
    with impatient.connect() as connection:
        connection.sendall(request_)
        assert connection.recv(65536).startswith(b"HTTP/1.1 ")
        flood(connection, b"0001\r\ny\r\n", count=30_000, pause_s=0.01)


def test_bytes_after_a_refusal_are_not_kept(server: Any) -> None:
    before = server.memory()
    with server.connect() as connection:
        connection.sendall(HEAD % (KINDS[0], b"Content-Length: 99999999"))
        assert b" 413 " in connection.recv(65536)
        for _ in range(90):
            connection.sendall(bytes(1 << 20))
        connection.shutdown(socket.SHUT_WR)
    assert server.memory() - before < 32 << 20
