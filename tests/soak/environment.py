"""The environment of a soak: two services, each with its memo's store, and a host of files."""

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.soak.context import SECRET, SHELF, TENANT
from tests.support import service
from tests.support.ports import free_port
from tests.support.redis import RedisServer

WORKERS = 2
# Small, so that it is full long before memory is judged.
_MEMO_BYTES = 256 << 10
_LONGEST_SHELVED = 4 << 20

_HARMLESS = re.compile(r'"level": "(info|warning)"')
_KILLED = re.compile(r'"worker \d+ exited with -9; restart ')


class Service(service.Service):
    """The service with a memo of that name: a supervisor and its workers."""

    def __init__(self, name: str, socket: Path, settings: dict[str, Any]) -> None:
        super().__init__("--uds", str(socket), settings=settings, env=service.environment())
        self.name = name
        self.socket = socket
        self.wait_until_listening()
        with self.new_client(trust_env=False) as client:
            client.get("/ready").raise_for_status()

    @property
    def processes(self) -> list[int]:
        """All of its processes, with the resource tracker of multiprocessing."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def count(self, metric: str) -> float:
        """Return a metric's value, summed over its labels."""
        with self.new_client(trust_env=False) as client:
            return service.count(client, metric)

    def killed_workers(self) -> int:
        """Return how many workers were killed, according to the log."""
        return len(_KILLED.findall(self.log.text))

    def errors(self) -> list[str]:
        """Return the lines of the log that are neither harmless nor about a killed worker."""
        lines = self.log.text.splitlines()
        return [line for line in lines if not _HARMLESS.search(line) and not _KILLED.search(line)]

    def shut_down(self) -> int:
        """Stop it as an operator does, and return its exit status."""
        self.process.terminate()
        status = self.process.wait(service.TIMEOUT_S)
        self.log.join()
        return status


class Environment:
    """All of it."""

    def __init__(
        self, folder: Path, origin: str, redis: RedisServer, services: list[Service]
    ) -> None:
        self.folder, self.origin, self.redis = folder, origin, redis
        self.on_redis, self.on_sqlite = self.services = services


@contextmanager
def started(folder: Path) -> Iterator[Environment]:
    """Everything started, in that folder, and everything stopped."""
    files = folder / "files"
    files.mkdir()
    _fill_shelf(files)
    with ExitStack() as stack:
        origin = stack.enter_context(file_server(files))
        redis = RedisServer(folder)
        stack.callback(redis.kill)
        services: list[Service] = []
        for name, url in (("redis", redis.url), ("sqlite", f"sqlite:{folder / 'memo'}")):
            settings = {
                "processes": WORKERS,
                "tenants": {TENANT: SECRET.hex()},
                "file_root": str(files),
                "url_hosts": [origin.removeprefix("http://")],
                "url_networks": ["127.0.0.0/8"],
                "memo_url": url,
                "memo_bytes": _MEMO_BYTES,
            }
            services.append(Service(name, folder / name, settings))
            stack.callback(services[-1].kill)
        yield Environment(files, origin, redis, services)


def _fill_shelf(folder: Path) -> None:
    """Files so old that the service asks whether they have changed, and is told no."""
    draw, noise = random.Random(0), np.random.default_rng(1)
    for number in range(SHELF):
        file = folder / f"shelf-{number}"
        file.write_bytes(noise.bytes(int(draw.triangular(0, _LONGEST_SHELVED, 0))))
        os.utime(file, (time.time() - 3600,) * 2)


@contextmanager
def file_server(folder: Path) -> Iterator[str]:
    """Python's own server of files, in a process of its own; its URL."""
    port = str(free_port())
    command = [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1"]
    more = ["--protocol", "HTTP/1.1", "--directory", str(folder)]
    with subprocess.Popen(
        [*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
