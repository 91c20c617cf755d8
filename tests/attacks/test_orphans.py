"""Orphaned server processes: they would keep the address and serve with outdated secrets and settings.

A process closes the listener and drains as soon as its supervisor exits, whatever the cause.
"""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import httpx
import pytest

import mmhash
from tests.support import service
from tests.support.decoders import state
from tests.support.ports import free_port
from tests.support.service import read_all
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def runs(pid: int) -> bool:
    return state(pid) != "Z"


class Supervisor(service.Service):
    """A supervisor and its processes."""

    @property
    def port(self) -> int:
        return self.address[1]

    def wait_for_processes(self, count: int = 2) -> list[int]:
        """Return the processes, when all of them answer."""
        wait_until(lambda: len(self.server_pids) == count)
        processes = self.server_pids
        wait_until(lambda: all(_answers(pid) for pid in processes))
        # Not /ready: that waits for decoders and a self test.
        assert httpx.get(f"{self.url}/live", timeout=60).status_code == 200
        return processes


def _answers(pid: int) -> bool:
    """Return True if the process handles signals and its event loop runs: then it has an epoll."""
    try:
        if not service.handles_signals(pid):
            return False
        links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any("eventpoll" in link for link in links)


@pytest.fixture
def start() -> Iterator[Callable[..., Supervisor]]:
    """Start services; the rest of their processes is killed at the end."""
    started: list[Supervisor] = []

    def start(*arguments: str, port: int = 0) -> Supervisor:
        arguments = ("--port", str(port), *arguments)
        # On a busy machine a request waits longer for the rest of its body.
        settings = {"timeout_s": 300}
        started.append(Supervisor(*arguments, settings=settings, new_session=True))
        started[-1].wait_until_listening()
        return started[-1]

    yield start
    for supervisor in started:
        supervisor.process.kill()
        # Its processes have its session, whose number is no other process's until it is waited for.
        for pid in all_pids():
            if session_of(pid) == supervisor.process.pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        supervisor.kill()


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def test_a_request_is_finished_while_the_next_service_has_the_address(
    start: Callable[..., Supervisor],
) -> None:
    supervisor = start("--processes", "2", port=free_port())
    processes = supervisor.wait_for_processes()
    with supervisor.begin_request() as connection:
        supervisor.process.kill()
        wait_until(lambda: "the supervisor has exited" in supervisor.log.text)
        wait_until(lambda: sum(map(runs, processes)) == 1)
        following = start(port=supervisor.port)
        key = mmhash.key(b"abc").hex()
        headers = {"content-type": "application/octet-stream"}
        answer = httpx.post(f"{following.url}/hash", content=b"abc", headers=headers, timeout=60)
        assert answer.json()["items"][0]["key"] == key
        connection.sendall(b"def")
        held = read_all(connection)
    assert held.startswith(b"HTTP/1.1 200 ")
    assert mmhash.key(b"abcdef").hex().encode() in held
    wait_until(lambda: not any(map(runs, processes)))


@pytest.mark.parametrize(
    ("state", "number"),
    [
        ("starts", signal.SIGSEGV),
        ("runs", signal.SIGKILL),
        ("reloads", signal.SIGKILL),
        ("drains", signal.SIGKILL),
    ],
)
def test_no_process_survives_a_supervisor_that_crashes(
    start: Callable[..., Supervisor], state: str, number: signal.Signals
) -> None:
    supervisor = start("--processes", "2")
    if state == "starts":
        wait_until(lambda: len(supervisor.server_pids) > 0)
    else:
        supervisor.wait_for_processes()
    processes = supervisor.server_pids
    connection = supervisor.begin_request() if state == "drains" else nullcontext()
    with connection:
        if state == "reloads":
            supervisor.process.send_signal(signal.SIGHUP)
        elif state == "drains":
            supervisor.process.terminate()
            wait_until(lambda: "draining: 1 " in supervisor.log.text)
        supervisor.process.send_signal(number)
        assert supervisor.process.wait(60) == -number
        if isinstance(connection, socket.socket):  # its request is still answered
            connection.sendall(b"def")
            answer = read_all(connection)
            assert mmhash.key(b"abcdef").hex().encode() in answer
    wait_until(lambda: not any(map(runs, processes)))
    assert start("--processes", "2", port=supervisor.port).wait_for_processes()  # it is free
