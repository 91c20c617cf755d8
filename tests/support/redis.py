"""Redis servers that tests can stop, freeze and restart."""

import shutil
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as NotListening

from tests.support.ports import free_port
from tests.support.service import TIMEOUT_S

BINARY = shutil.which("redis-server")
NEEDED = "needs redis-server (apt-get install redis-server)"


class RedisServer:
    """A Redis server on a free port, without persistence."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        assert BINARY is not None, NEEDED
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        plain = ("--save", "", "--bind", "127.0.0.1", "--dir", str(folder))
        self._command = [BINARY, "--port", str(self.port), *plain, *arguments]
        self.start()

    def start(self) -> None:
        """Start the server, and return when it answers."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        with self.client() as client:
            while True:
                try:
                    client.ping()
                    break
                except NotListening:
                    assert self.process.poll() is None
                    time.sleep(0.01)

    def client(self) -> Any:
        """Return a plain client, to be used as a context manager."""
        return closing(Redis(port=self.port, socket_timeout=TIMEOUT_S))

    def kill(self) -> None:
        """Kill the server at once. Its entries are lost."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Stop the server from answering, but keep its connections open."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the server answer again."""
        self.process.send_signal(signal.SIGCONT)
