"""Connections that send a head byte by byte, or nothing (slowloris), until no more are accepted.

A head must be complete within twice `timeout_s`, however steadily it arrives.
"""

import socket
from typing import Any

import pytest

from tests.support.victim import flood

pytestmark = pytest.mark.slow


def end_of(connection: socket.socket) -> None:
    """Wait until the server has closed the connection."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"P",
        b"POST /hash HTTP/1.1\r\n",
        b"POST /hash HTTP/1.1\r\nHost: test\r\nX: y",
        b"\r\n\r\n",
    ],
)
def test_a_client_that_sends_no_head_is_disconnected(impatient: Any, sent: bytes) -> None:
    with impatient.connect() as connection:
        connection.sendall(sent)
        end_of(connection)


def test_a_client_that_sends_it_byte_by_byte_is_disconnected(impatient: Any) -> None:
    with impatient.connect() as connection:
        connection.sendall(b"POST /hash HTTP/1.1\r\nX: ")
        flood(connection, b"y", count=30_000, pause_s=0.01)


def test_a_client_that_had_a_response_is_disconnected(impatient: Any) -> None:
    with impatient.connect() as connection:
        connection.sendall(b"GET /live HTTP/1.1\r\nHost: test\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /live HTTP/1.1\r\nX: ")
        end_of(connection)


def test_three_hundred_slow_clients_delay_nobody(impatient: Any) -> None:
    connections = [impatient.connect() for _ in range(300)]
    for connection in connections:
        connection.sendall(b"POST /hash HTTP/1.1\r\nX: ")
    impatient.assert_well()
    for connection in connections:
        end_of(connection)
        connection.close()
