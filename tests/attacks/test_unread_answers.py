"""A client that asks for long answers and reads none, so that they pile up in the server.

An answer of which nothing is read in `stall_timeout_s` is given up, with its connection.
"""

import json
import socket
from typing import Any

HEAD = (
    b"POST /annotate?engine=vllm HTTP/1.1\r\nHost: test\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


def connect(server: Any) -> socket.socket:
    """A connection through which little fits that is not read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect(server.address)
    return connection


def request(length: int) -> bytes:
    body = json.dumps({"messages": [], "padding": "a" * length}).encode()
    return HEAD % len(body) + body


def test_who_reads_nothing_is_hung_up_on(impatient: Any, flood: Any) -> None:
    with connect(impatient) as connection:
        flood(connection, request(3 << 20), count=1000)


def test_who_reads_slowly_but_reads_gets_all(impatient: Any) -> None:
    with connect(impatient) as connection:
        connection.sendall(request(256 << 10).replace(b"Host", b"Connection: close\r\nHost"))
        answer = b"".join(iter(lambda: connection.recv(1024), b""))
    assert len(answer) > 256 << 10
