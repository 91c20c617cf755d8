"""What a soak runs against: two services, each with its memo's store, and a host of files."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import numpy as np

from bench.memo import free_port, redis_server
from bench.soak.means import SECRET, SHELF, TENANT

WORKERS = 2
# Small, so that it is full long before memory is judged.
_MEMO_BYTES = 256 << 10
_LONGEST_SHELVED = 4 << 20

_HARMLESS = re.compile(r'"level": "(info|warning)"')
_KILLED = re.compile(r'"worker \d+ exited with -9"')


class Service:
    """The service with a memo of that name: a supervisor and its workers."""

    def __init__(self, name: str, log: Path, settings: Mapping[str, str]) -> None:
        self.name, self._log = name, log
        inherited = {key: text for key, text in os.environ.items() if not key.startswith("MMHASH_")}
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mmhash", "serve", "--port", "0"],
                stderr=file,
                env=inherited | {f"MMHASH_{key.upper()}": text for key, text in settings.items()},
            )
        while not (found := re.search(r"running on (http://[0-9.:]+)", log.read_text())):
            assert self.process.poll() is None, log.read_text()
            time.sleep(0.05)
        self.url = found[1]
        httpx.get(f"{self.url}/ready", timeout=60, trust_env=False).raise_for_status()

    @property
    def processes(self) -> list[int]:
        """All of its processes."""
        return [self.process.pid, *self._children()]

    @property
    def workers(self) -> list[int]:
        """Those that answer; beside them multiprocessing has one to clean up."""
        return [pid for pid in self._children() if b"spawn_main" in _command_of(pid)]

    def _children(self) -> list[int]:
        pid = self.process.pid
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]

    def count(self, metric: str) -> float:
        """A metric's value, all of its labels together."""
        lines = httpx.get(f"{self.url}/metrics", timeout=60, trust_env=False).text.splitlines()
        samples = (re.fullmatch(rf"{metric}(?:{{.*}})? (\S+)", line) for line in lines)
        return sum(float(found[1]) for found in samples if found)

    def killed_workers(self) -> int:
        """How many workers the log says were killed."""
        return len(_KILLED.findall(self._log.read_text()))

    def errors(self) -> list[str]:
        """The lines of the log that are neither harmless nor about a killed worker."""
        lines = self._log.read_text().splitlines()
        return [line for line in lines if not _HARMLESS.search(line) and not _KILLED.search(line)]

    def stop(self) -> int:
        """Stop it as an operator does; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


class Redis:
    """A server that can be taken away and brought back, empty."""

    def __init__(self) -> None:
        self._port = free_port()
        self.url = f"redis://127.0.0.1:{self._port}"
        self._running = ExitStack()
        self.start()

    def start(self) -> None:
        """Bring it back."""
        self.process = self._running.enter_context(redis_server(self._port))

    def stop(self) -> None:
        """Kill it."""
        self._running.close()


class Stage:
    """All of it."""

    def __init__(self, folder: Path, origin: str, redis: Redis, services: list[Service]) -> None:
        self.folder, self.origin, self.redis = folder, origin, redis
        self.on_redis, self.on_sqlite = self.services = services


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """Everything started, in that folder, and everything stopped."""
    files = folder / "files"
    files.mkdir()
    _fill_shelf(files)
    with ExitStack() as stack:
        origin = stack.enter_context(_origin(files))
        redis = Redis()
        stack.callback(redis.stop)
        services = []
        for name, url in (("redis", redis.url), ("sqlite", f"sqlite:{folder / 'memo'}")):
            settings = {
                "workers": str(WORKERS),
                "shm": "true",
                "tenants": f'{{"{TENANT}": "{SECRET.hex()}"}}',
                "file_root": str(files),
                "url_hosts": f'["{origin.removeprefix("http://")}"]',
                "url_networks": '["127.0.0.0/8"]',
                "memo_url": url,
                "memo_bytes": str(_MEMO_BYTES),
            }
            services.append(Service(name, folder / f"{name}.log", settings))
            stack.callback(services[-1].stop)
        yield Stage(files, origin, redis, services)


def _fill_shelf(folder: Path) -> None:
    """Files so old that the service asks whether they have changed, and is told no."""
    draw, noise = random.Random(0), np.random.default_rng(1)
    for number in range(SHELF):
        file = folder / f"shelf-{number}"
        file.write_bytes(noise.bytes(int(draw.triangular(0, _LONGEST_SHELVED, 0))))
        os.utime(file, (time.time() - 3600,) * 2)


@contextmanager
def _origin(folder: Path) -> Iterator[str]:
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


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:  # it has ended
        return b""
