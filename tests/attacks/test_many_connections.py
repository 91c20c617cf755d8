"""So many connections that the process runs out of descriptors and can open nothing else.

A process accepts as many as its descriptors allow, less 128, and closes the others at once.
"""

import resource
import subprocess
import time
from typing import Any

import httpx
import pytest

from tests.support.victim import serving


@pytest.fixture
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen.__init__

    def limited(*arguments: Any, **named: Any) -> None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        start(*arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (192, hard)), **named)  # fmt: skip

    monkeypatch.setattr(subprocess.Popen, "__init__", limited)


@pytest.mark.slow
@pytest.mark.usefixtures("few_descriptors")
def test_those_too_many_are_hung_up_on_and_the_others_served() -> None:
    with serving() as server:
        connections = [server.connect() for _ in range(150)]
        ended: list[Any] = []
        for connection in connections:
            connection.settimeout(2 if len(ended) < 80 else 60)
            try:
                ended.append(connection.recv(1) == b"")
            except ConnectionResetError:
                ended.append(True)
            except TimeoutError:
                ended.append(False)
                break
        assert not all(ended)
        # Those that were taken on are answered.
        connections[0].sendall(b"GET /ready HTTP/1.1\r\nHost: test\r\n\r\n")
        connections[0].settimeout(60)
        assert connections[0].recv(65536).startswith(b"HTTP/1.1 200 ")
        refused = 0
        for connection in connections[64:]:
            connection.settimeout(60)
            try:
                refused += connection.recv(1) == b""
            except ConnectionResetError:
                refused += 1
        assert refused == len(connections) - 64
        for connection in connections:
            connection.close()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                server.assert_well()
                break
            except (OSError, httpx.TransportError):  # it has not closed enough of them yet
                time.sleep(0.1)
