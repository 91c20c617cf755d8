"""A helper process of this package, connected to this process by a socket."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


class ChildProcess:
    """A process that runs a module, with the descriptor of its socket as the first argument.

    The process must exit when the connection closes, and so when this process exits.
    """

    def __init__(
        self, module: str, *arguments: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self.connection, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            try:
                self._process = subprocess.Popen(  # noqa: S603  (no argument is a client's)
                    [sys.executable, "-P", "-m", module, *map(str, (descriptor, *arguments))],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=_without_hooks(os.environ if environment is None else environment),
                    pass_fds=[descriptor],
                    # Ctrl-C is for the service, which still has requests to answer.
                    start_new_session=True,
                )
            except BaseException:
                self.connection.close()
                raise
        self.pid = self._process.pid

    def kill(self) -> None:
        """Close the connection, and kill the process if it still runs."""
        self.connection.close()
        self._process.kill()

    def poll(self) -> int | None:
        """Return the exit code, or None if the process still runs."""
        return self._process.poll()

    def wait(self) -> int:
        """Wait for the process to exit, and return its exit code."""
        return self._process.wait()


def _without_hooks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without folders of PYTHONPATH that hook into each Python process.

    opentelemetry-instrument adds such a folder: a decoder would start exporters before it confines
    itself.
    """
    if "PYTHONPATH" not in environment:
        return dict(environment)
    folders = environment["PYTHONPATH"].split(os.pathsep)
    kept = [each for each in folders if not (Path(each) / "sitecustomize.py").exists()]
    return {**environment, "PYTHONPATH": os.pathsep.join(kept)}
