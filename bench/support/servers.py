"""Starts servers for benchmarks, each in its own process."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Server(NamedTuple):
    """A server process that answers on a port of this machine."""

    process: subprocess.Popen[str]
    port: int
    """0 on a Unix socket."""

    def peak_mib(self) -> float:
        """Return the peak resident memory of the process."""
        with open(f"/proc/{self.process.pid}/status") as status:  # noqa: PTH123  (no file)
            (line,) = (line for line in status if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def cpu_s(self) -> float:
        """Return the seconds of CPU that the process has used."""
        # The id of the process's CPU clock, as by clock_getcpuclockid(3). It counts nanoseconds.
        return time.clock_gettime((~self.process.pid << 3) | 2)


@contextmanager
def run_module(*module: str, **environment: str) -> Iterator[Server]:
    """Run `python -m MODULE …`, a server that prints its address as uvicorn does."""
    command = [sys.executable, "-m", *module]
    variables = os.environ | environment
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables) as process:
        assert process.stderr is not None
        lines = (
            re.search(r"running on (?:http://[^:]+:(\d+)|\S*unix)", line) for line in process.stderr
        )
        port = next(int(match[1] or 0) for match in lines if match)
        # A full pipe would block the server at its next log line.
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        try:
            yield Server(process, port)
        finally:
            process.terminate()
            process.wait()
            drain.wait()


@contextmanager
def running(*module: str, **environment: str) -> Iterator[str]:
    """Run `python -m MODULE … --port 0`. Yield the URL of the server."""
    with run_module(*module, "--port", "0", **environment) as server:
        yield f"http://127.0.0.1:{server.port}"


@contextmanager
def serving(processes: int = 1) -> Iterator[Server]:
    """Run the service together with the plain handlers of bench/support/plain_handlers.py."""
    with run_module("bench.support.plain_handlers", str(processes)) as server:
        _wait_until_ready(server.port, processes)
        yield server


def _wait_until_ready(port: int, processes: int) -> None:
    request = b"GET /ready HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n"
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 10) as connection:
                connection.sendall(request)
                if connection.recv(1000).startswith(b"HTTP/1.1 200"):
                    break
        except OSError:
            time.sleep(0.05)
    time.sleep(2.0 * (processes - 1))  # only the first process has answered yet


@contextmanager
def redis_server(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Redis server that writes nothing to disk."""
    binary = shutil.which("redis-server")
    assert binary is not None, "redis-server is needed"
    command = [binary, "--port", str(port), "--save", "", "--bind", "127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
        try:
            yield process
        finally:
            process.kill()


def processes_of(session: int) -> Iterator[tuple[int, float]]:
    """Yield each process of a session, and the seconds of CPU that it has used."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # After the name, which may contain spaces, come state, ppid, pgrp, session, …
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session:
            yield int(path.parent.name), sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
