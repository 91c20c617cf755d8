"""Orphaned workers: they would keep the address and serve with outdated secrets and settings.

A worker closes the listener and drains as soon as its supervisor exits, whatever the cause.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import mmhash

HEAD = (
    b"POST /hash HTTP/1.1\r\nHost: test\r\nContent-Type: application/octet-stream\r\n"
    b"Content-Length: 6\r\nExpect: 100-continue\r\n\r\n"
)


def pids_below(pid: int) -> list[int]:
    """Return the workers of a supervisor, without the resource tracker of multiprocessing."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Service:
    """A supervisor and its workers."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log
        wait_for(lambda: "running on" in log.read_text() or process.poll() is not None)
        found = re.search(r"running on http://127.0.0.1:(\d+)", log.read_text())
        assert found is not None, log.read_text()
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def wait_for_workers(self, count: int = 2) -> list[int]:
        """Return the workers, once their event loops run and one answers."""
        wait_for(lambda: len(pids_below(self.process.pid)) == count)
        workers = pids_below(self.process.pid)
        wait_for(lambda: all(_answers(pid) for pid in workers))
        # Not /ready: that waits for decoders and a self test.
        assert httpx.get(f"{self.url}/live", timeout=60).status_code == 200
        return workers

    def begin_request(self) -> socket.socket:
        """Send the first half of a request, and return once a worker has accepted it."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall(HEAD)
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"abc")
        return connection


def _answers(pid: int) -> bool:
    """Return whether the worker's event loop runs: until then it has no epoll."""
    try:
        links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any("eventpoll" in link for link in links)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Start services, and kill all their processes in the end."""
    started: list[subprocess.Popen[bytes]] = []
    left: list[int] = []

    def start(*arguments: str, port: int = 0) -> Service:
        log = tmp_path / f"{len(started)}.log"
        command = [sys.executable, "-m", "mmhash", "serve", "--port", str(port), *arguments]
        with log.open("wb") as file:
            started.append(subprocess.Popen(command, stderr=file, start_new_session=True))
        return Service(started[-1], log)

    yield start
    for process in started:
        process.kill()
        process.wait()
        # Its workers have its session.
        left += [pid for pid in all_pids() if session_of(pid) == process.pid]
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def test_workers_that_start_exit_too(start: Callable[..., Service]) -> None:
    service = start("--workers", "2")
    wait_for(lambda: len(pids_below(service.process.pid)) == 2)
    workers = pids_below(service.process.pid)
    service.process.kill()
    wait_for(lambda: not any(map(runs, workers)))


def test_a_request_is_finished_while_the_next_service_has_the_address(
    start: Callable[..., Service],
) -> None:
    service = start("--workers", "2")
    workers = service.wait_for_workers()
    with service.begin_request() as connection:
        service.process.kill()
        wait_for(lambda: "the supervisor has exited" in service.log.read_text())
        wait_for(lambda: sum(map(runs, workers)) == 1)
        following = start(port=service.port)
        key = mmhash.key(b"abc").hex()
        headers = {"content-type": "application/octet-stream"}
        answer = httpx.post(f"{following.url}/hash", content=b"abc", headers=headers, timeout=60)
        assert answer.json()["items"][0]["key"] == key
        connection.sendall(b"def")
        held = b"".join(iter(lambda: connection.recv(65536), b""))
    assert held.startswith(b"HTTP/1.1 200 ")
    assert mmhash.key(b"abcdef").hex().encode() in held
    wait_for(lambda: not any(map(runs, workers)))


def test_neither_an_endless_request_nor_a_suspension_keeps_an_orphan(
    start: Callable[..., Service],
) -> None:
    service = start("--workers", "2", "--set", "grace_s=0.3")
    suspended, busy = service.wait_for_workers()
    os.kill(suspended, signal.SIGSTOP)
    with service.begin_request():
        service.process.send_signal(signal.SIGABRT)
        wait_for(lambda: not runs(busy))
    os.kill(suspended, signal.SIGCONT)
    wait_for(lambda: not runs(suspended))
    # The address is free.
    socket.create_server(("127.0.0.1", service.port)).close()


HANGING = """
import sys, time
import mmhash_service.server.server as server
import mmhash_service.server.supervisor as supervisor
from mmhash_service.app import create_app
from mmhash_service.settings import Settings

def create(settings):
    app = create_app(settings)

    @app.get("/hang")
    async def hang() -> None:
        time.sleep(3600)

    return app

server.create_app = create
supervisor._MARGIN_S = 0.2
if __name__ == "__main__":
    server.serve(Settings(port=0, workers=2, grace_s=0.2))
"""


def test_a_hung_worker_exits_too(tmp_path: Path) -> None:
    program, log = tmp_path / "program.py", tmp_path / "log"
    program.write_text(HANGING)
    with _logged([sys.executable, str(program)], log) as process:
        service = Service(process, log)
        workers = service.wait_for_workers()
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{service.url}/hang", timeout=1)
        process.kill()
        wait_for(lambda: not any(map(runs, workers)))


@contextmanager
def _logged(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("workers", "number", "to_all"),
    [
        (1, signal.SIGHUP, False),
        (2, signal.SIGHUP, False),
        (2, signal.SIGTERM, True),
        (2, signal.SIGINT, True),
    ],
)
def test_a_signal_drains_them_whoever_it_reaches(
    start: Callable[..., Service], workers: int, number: signal.Signals, to_all: bool
) -> None:
    service = start("--workers", str(workers))
    pids = service.wait_for_workers() if workers > 1 else []
    with service.begin_request() as connection:
        if to_all:  # like a terminal or systemd
            os.killpg(service.process.pid, number)
        else:
            service.process.send_signal(number)
        wait_for(lambda: "draining: 1 " in service.log.read_text())
        time.sleep(0.2)  # two ticks of the server
        connection.sendall(b"def")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert service.process.wait(60) == 0
    assert not any(map(runs, pids))
    assert "Traceback" not in service.log.read_text()
    assert "exited with" not in service.log.read_text()
