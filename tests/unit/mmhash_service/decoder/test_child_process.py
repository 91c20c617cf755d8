"""Helper processes: connected by a socket, and killed with it."""

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from mmhash_service.decoder.child_process import ChildProcess


def started(**options: Any) -> ChildProcess:
    """A decoder, once it listens."""
    child = ChildProcess("mmhash_service.decoder.process", os.getpid(), 1000, 1000, **options)
    assert child.connection.recv(1000)
    return child


def test_it_exits_when_the_connection_is_closed() -> None:
    child = started()
    assert child.poll() is None
    child.connection.close()
    assert child.wait() == 0


def test_it_is_killed() -> None:
    child = started()
    os.kill(child.pid, signal.SIGSTOP)  # it must not see the end of the connection first
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert not Path(f"/proc/{child.pid}").exists()


def test_a_program_that_cannot_start_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    make = socket.socketpair

    def note() -> tuple[socket.socket, socket.socket]:
        made.extend(pair := make())
        return pair

    monkeypatch.setattr(socket, "socketpair", note)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(FileNotFoundError):
        started()
    # Not by /proc/self/fd: the server of other tests closes idle connections meanwhile.
    assert [one.fileno() for one in made] == [-1, -1]


def test_it_gets_only_the_given_environment() -> None:
    path = os.environ.get("PYTHONPATH", "")
    child = started(environment={"PATH": "/bin", "PYTHONPATH": path})
    variables = Path(f"/proc/{child.pid}/environ").read_bytes()
    child.kill()
    child.wait()
    assert variables == f"PATH=/bin\0PYTHONPATH={path}\0".encode()
