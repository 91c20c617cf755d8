"""Runs programs of an engine's environment as forks of a process that has imported its dependencies.

Each process of an engine needs 16 s of CPU for its imports, of which torch, transformers and others
take 13. The engine's own modules are not imported before the fork: each process imports them with
its own variables and plugins, and so does each process that multiprocessing spawns.
"""

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import multiprocessing.util
import os
import runpy
import site
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any

_DEPENDENCIES = (
    "torch",
    "torch._inductor.lowering",
    "torchvision",
    "transformers.models",
    "scipy.signal",
    "openai.types.responses",
    "xgrammar",
    "fastapi",
    "aiohttp",
    "uvicorn",
)
_PR_SET_CHILD_SUBREAPER = 36
_LONGEST_ORDER = 1 << 17


class Program:
    """A program in a session of its own, with the members of `subprocess.Popen` that tests use."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], files: Mapping[int, int]
    ) -> None:
        """Run a command of an environment. `files` are the program's descriptors and ours."""
        program = Path(command[0])
        arguments = command[1:] if program.name == "python" else command
        server = _server_of(str(program.with_name("python")), env)
        self.pid = server.start(arguments, env, files)
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, or None while the program runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def wait(self, timeout: float = 600) -> int:
        """Return the exit status once the program has exited."""
        until = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("python", timeout)
            time.sleep(0.02)
        return status


def run(
    command: Sequence[str], env: Mapping[str, str], captured: Sequence[int] = (1,)
) -> tuple[int, str]:
    """Run a command of an environment. Return its exit status and what it wrote."""
    with TemporaryFile("w+") as output:
        status = Program(command, env=env, files=dict.fromkeys(captured, output.fileno())).wait()
        output.seek(0)
        return status, output.read()


class _Server:
    """A process that starts programs, as children of this process."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders, self._lock = orders, Lock()
        # The server forks twice, and this process adopts the orphan.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def start(
        self, arguments: Sequence[str], env: Mapping[str, str], files: Mapping[int, int]
    ) -> int:
        order = {"arguments": arguments, "env": dict(env), "files": list(files)}
        with self._lock:
            socket.send_fds(self._orders, [json.dumps(order).encode()], list(files.values()))
            return int(self._orders.recv(64))


_servers: dict[str, _Server] = {}
_starting = Lock()


def _server_of(python: str, env: Mapping[str, str]) -> _Server:
    with _starting:
        if python not in _servers:
            mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with its:
                its.set_inheritable(True)
                command = [python, "-I", __file__, str(its.fileno())]
                os.posix_spawn(python, command, env, setsid=True)
            atexit.register(mine.close)
            _servers[python] = _Server(mine)
        return _servers[python]


def _next_order(orders: socket.socket) -> dict[str, Any]:
    """Fork for each order. Return the order in the fork, or exit when the owner has exited."""
    while True:
        message, files, _, _ = socket.recv_fds(orders, _LONGEST_ORDER, 16)
        if not message:
            os._exit(0)
        child = os.fork()
        if child == 0:
            parent = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == parent:  # until the owner has adopted this process
                time.sleep(0.001)
            orders.send(str(os.getpid()).encode())
            orders.close()
            order: dict[str, Any] = json.loads(message)
            _renumber(files, order["files"])
            return order
        os.waitpid(child, 0)
        for file in files:
            os.close(file)


def _renumber(files: Sequence[int], numbers: Sequence[int]) -> None:
    # Move all of them out of the way first: a number may be in use by another one.
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, 256) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(high, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def _execute(order: dict[str, Any]) -> None:
    """Run an order's program in this process, as the interpreter does."""
    arguments = order["arguments"]
    is_spawned = arguments[0] == "-c" and arguments[-1] == "--multiprocessing-fork"
    if not is_spawned:
        os.setsid()
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            mine.close()
            _execute(_next_order(its))
            return
        its.close()
        _spawn_from(_Server(mine))
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    site.execsitecustomize()
    match arguments:
        case ["-m", module, *_]:
            sys.argv = arguments[1:]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.argv = ["-c", *rest]
            exec(code, sys.modules["__main__"].__dict__)
        case [path, *_]:
            sys.argv = arguments
            sys.path.insert(0, str(Path(path).parent))
            runpy.run_path(path, run_name="__main__")


def _spawn_from(server: _Server) -> None:
    """Let multiprocessing spawn processes from a server."""

    def spawn(_python: bytes, words: Sequence[str | bytes], files: Sequence[int]) -> int:
        arguments = [os.fsdecode(word) for word in words]
        kept = {int(file): int(file) for file in files}
        return server.start(arguments[arguments.index("-c") :], os.environ, kept)

    multiprocessing.util.spawnv_passfds = spawn


def main(descriptor: int) -> None:
    """Import the dependencies, and run programs until the owner has exited."""
    for name in _DEPENDENCIES:
        importlib.import_module(name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork has no copy of other threads"
    gc.freeze()
    _execute(_next_order(socket.socket(fileno=descriptor)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
