"""Helper processes: connected by a socket, and killed with it."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from mmhash_service.runtime.child_process import ChildProcess


def test_it_exits_when_the_connection_is_closed() -> None:
    child = ChildProcess("mmhash_service.items.mapped_hasher")
    assert child.poll() is None
    child.connection.close()
    assert child.wait() == 0


def test_it_is_killed() -> None:
    child = ChildProcess("mmhash_service.items.mapped_hasher")
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
        ChildProcess("mmhash_service.items.mapped_hasher")
    # Not by /proc/self/fd: the server of other tests closes idle connections meanwhile.
    assert [one.fileno() for one in made] == [-1, -1]


def test_it_gets_only_the_given_environment() -> None:
    child = ChildProcess("mmhash_service.items.mapped_hasher", environment={"PATH": "/bin"})
    environment = Path(f"/proc/{child.pid}/environ")
    while not (variables := environment.read_bytes()):
        time.sleep(0.001)  # its program is being loaded
    child.kill()
    child.wait()
    assert variables == b"PATH=/bin\0"
