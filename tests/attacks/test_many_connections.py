"""So many connections that the process runs out of descriptors and can open nothing else.

A process accepts half as many as its hard limit on descriptors allows, less 128, and closes all
others at once. Each request may take a second descriptor.
"""

import socket
from contextlib import suppress

import httpx
import pytest

from tests.support.gateway import COMMAND as GATEWAY
from tests.support.gateway import QUICK, EngineProcess
from tests.support.service import COMMAND
from tests.support.service import serving as serving_any
from tests.support.victim import Victim, serving
from tests.support.waiting import wait_until

# prlimit starts new interpreters.
pytestmark = pytest.mark.slow


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


def test_connections_beyond_the_limit_are_closed_and_the_others_served() -> None:
    with serving("prlimit", "--nofile=192:192", *COMMAND) as server:
        connections = [server.connect() for _ in range(150)]
        assert all(map(is_refused, connections[32:]))
        connections[0].sendall(b"GET /live HTTP/1.1\r\nHost: test\r\n\r\n")
        assert connections[0].recv(65536).startswith(b"HTTP/1.1 200 ")
        for connection in connections:
            connection.close()
        wait_until(lambda: is_well(server))


def test_the_hard_limit_counts() -> None:
    with serving("prlimit", "--nofile=192:1024", *COMMAND) as server:
        connections = [server.connect() for _ in range(40)]
        connections[-1].sendall(b"GET /live HTTP/1.1\r\nHost: test\r\n\r\n")
        assert connections[-1].recv(65536).startswith(b"HTTP/1.1 200 ")
        for connection in connections:
            connection.close()


HANGING = b'{"mode": "hang"}'
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n%b"


def test_a_gateway_keeps_a_descriptor_for_the_worker_of_each_request(worker: EngineProcess) -> None:
    """Without one it would take the worker for unreachable, and end the requests of others."""
    program = ("prlimit", "--nofile=300:300", *GATEWAY)
    before = hanging(worker)
    with serving_any("--worker", worker.url, program=program, settings=QUICK) as gateway:
        connections = [gateway.connect() for _ in range(150)]
        for connection in connections:
            with suppress(OSError):  # closed, because there are too many
                connection.sendall(CHAT % (len(HANGING), HANGING))
        wait_until(lambda: hanging(worker) - before == 86)
        assert "cannot connect" not in gateway.log.text
        for connection in connections:
            connection.close()


def hanging(worker: EngineProcess) -> int:
    """Return how many requests of this kind the worker has got."""
    count: int = worker.state()["seen"].count("hang")
    return count
