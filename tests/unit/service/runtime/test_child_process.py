"""Helper processes: connected by a socket, and killed with it."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from mmhash_service.runtime.child_process import ChildProcess
from tests.support.descriptors import descriptors_below


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
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    before = descriptors_below("socket:")
    with pytest.raises(FileNotFoundError) as caught:  # its traceback refers to the child
        ChildProcess("mmhash_service.items.mapped_hasher")
    assert descriptors_below("socket:") == before
    del caught


def test_it_gets_only_the_given_environment() -> None:
    child = ChildProcess("mmhash_service.items.mapped_hasher", environment={"PATH": "/bin"})
    environment = Path(f"/proc/{child.pid}/environ")
    while not (variables := environment.read_bytes()):
        time.sleep(0.001)  # its program is being loaded
    child.kill()
    child.wait()
    assert variables == b"PATH=/bin\0"
