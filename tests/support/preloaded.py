"""Runs a module as `python -m` does, but in a fork of a process that has imported the servers.

The imports of a server take more than a second of CPU, and its decoders half a second. The tests
start hundreds of servers. Decoders start before the first image or readiness probe.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import TextIO

import pytest

_context = multiprocessing.get_context("forkserver")
_SERVERS = (
    "mmhash.cli.serve",
    "mmhash_service.http.gateway",
    "mmhash_service.server.server",
    "mmhash_service.picker.app",
    "tests.support.decoders",
    "uvloop",
)


@cache
def _start_forkserver() -> None:
    _context.set_forkserver_preload(list(_SERVERS))
    with pytest.MonkeyPatch.context() as patch:
        # As `mmhash` sets them before its imports.
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        patch.setenv("PYDANTIC_DISABLE_PLUGINS", "1")
        forkserver.ensure_running()


class Process:
    """A running module, with the members of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        piped: bool = False,
    ) -> None:
        """Start the module. If `piped`, `stderr` is what it writes there."""
        _start_forkserver()
        self.stderr: TextIO | None = None
        started = (module, arguments, dict(os.environ if env is None else env))
        if not piped:
            self._process = _context.Process(target=_run, args=started)
            self._process.start()
            return
        read, write = os.pipe()
        with Connection(write, readable=False) as stderr:
            self._process = _context.Process(target=_run, args=(*started, stderr))
            self._process.start()
        self.stderr = os.fdopen(read, errors="replace")

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once the process has exited."""
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("python -m", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has exited."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run(
    module: str, arguments: Sequence[str], env: dict[str, str], stderr: Connection | None = None
) -> None:
    """Run the module in the forked process."""
    if stderr is not None:
        os.dup2(stderr.fileno(), sys.stderr.fileno())
        stderr.close()
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module, *arguments]
    from mmhash.states import use_threads_again
    from mmhash_service import resources
    from tests.support.decoders import LateDecoders

    resources.DecoderPool = LateDecoders  # type: ignore[attr-defined, misc]
    use_threads_again()  # no process has used any so far
    runpy.run_module(module, run_name="__main__", alter_sys=True)
