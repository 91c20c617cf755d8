"""Helper processes: connected by a socket, and killed with it."""

import signal
from pathlib import Path

from mmhash_service.runtime.child_process import ChildProcess


def test_it_exits_when_the_connection_is_closed() -> None:
    child = ChildProcess("mmhash_service.items.mapped_hasher")
    assert child.poll() is None
    child.connection.close()
    assert child.wait() == 0


def test_it_is_killed() -> None:
    child = ChildProcess("mmhash_service.items.mapped_hasher")
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert not Path(f"/proc/{child.pid}").exists()


def test_it_gets_only_the_given_environment() -> None:
    child = ChildProcess("mmhash_service.items.mapped_hasher", environment={"PATH": "/bin"})
    variables = Path(f"/proc/{child.pid}/environ").read_bytes().split(b"\0")
    child.kill()
    child.wait()
    assert [name for name in variables if name] == [b"PATH=/bin"]
