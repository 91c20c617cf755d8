"""So many connections that the process runs out of descriptors and can open nothing else.

A process accepts as many as its descriptors allow, less 128, and closes all others at once.
"""

import socket

import httpx
import pytest

from tests.support.service import COMMAND
from tests.support.victim import Victim, serving
from tests.support.waiting import wait_until


def is_refused(connection: socket.socket) -> bool:
    """Return True when the server has closed a connection without a response."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def is_well(server: Victim) -> bool:
    try:
        server.assert_well()
    except (OSError, httpx.TransportError):  # it has not closed enough of them yet
        return False
    return True


@pytest.mark.slow
def test_connections_beyond_the_limit_are_closed_and_the_others_served() -> None:
    with serving("prlimit", "--nofile=192:", *COMMAND) as server:
        connections = [server.connect() for _ in range(150)]
        assert all(map(is_refused, connections[64:]))
        connections[0].sendall(b"GET /live HTTP/1.1\r\nHost: test\r\n\r\n")
        assert connections[0].recv(65536).startswith(b"HTTP/1.1 200 ")
        for connection in connections:
            connection.close()
        wait_until(lambda: is_well(server))
