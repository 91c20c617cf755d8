"""Connections that send a head byte by byte, or nothing (slowloris), until nobody else finds room.

A head that is begun must be whole within two times `stall_timeout_s`, however busily it comes.
"""

import socket
from typing import Any

import pytest

from tests.support.victim import flood

pytestmark = pytest.mark.slow


def end_of(connection: socket.socket) -> None:
    """Wait until the server has hung up."""
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
def test_who_sends_no_head_is_hung_up_on(impatient: Any, sent: bytes) -> None:
    with impatient.connect() as connection:
        connection.sendall(sent)
        end_of(connection)


def test_who_sends_it_by_the_byte_is_hung_up_on(impatient: Any) -> None:
    with impatient.connect() as connection:
        connection.sendall(b"POST /hash HTTP/1.1\r\nX: ")
        flood(connection, b"y", count=30_000, pause_s=0.01)


def test_who_has_been_answered_before_is_hung_up_on_too(impatient: Any) -> None:
    with impatient.connect() as connection:
        connection.sendall(b"GET /live HTTP/1.1\r\nHost: test\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /live HTTP/1.1\r\nX: ")
        end_of(connection)


def test_three_hundred_of_them_keep_nobody_waiting(impatient: Any) -> None:
    connections = [impatient.connect() for _ in range(300)]
    for connection in connections:
        connection.sendall(b"POST /hash HTTP/1.1\r\nX: ")
    impatient.assert_well()
    for connection in connections:
        end_of(connection)
        connection.close()
