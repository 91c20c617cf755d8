"""The processes of the soak: workers that can be killed, Redis, and the gateway."""

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import httpx

from tests.live import models
from tests.soak.environment import file_server
from tests.soak.gateway.images import write_images
from tests.support import service
from tests.support.gateway import COMMAND
from tests.support.ports import free_port
from tests.support.redis import RedisServer

WORKERS = 3


class Worker:
    """A worker at an address that it keeps when it is restarted."""

    def __init__(self) -> None:
        self._ports = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self._ports[0]}"
        self.down: list[tuple[float, float]] = []
        """The times from each kill until it answered again."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def specification(self) -> str:
        """The worker as `--worker` wants it."""
        _, events, replay = (f"tcp://127.0.0.1:{port}" for port in self._ports)
        return f"{self.url},events={events},replay={replay},engine=vllm@0.32.0,block_size=16"

    def start(self) -> None:
        """Start it, and note in the background when it answers."""
        command = [sys.executable, "-m", "tests.soak.gateway.worker", *map(str, self._ports)]
        self._process = subprocess.Popen(command)
        if self.down:
            Thread(target=self._note_end, args=(len(self.down) - 1,), daemon=True).start()

    def _note_end(self, number: int) -> None:
        self.wait_until_ready()
        begin, _ = self.down[number]
        self.down[number] = begin, time.monotonic()

    def wait_until_ready(self) -> None:
        """Wait until it answers."""
        until = time.monotonic() + service.TIMEOUT_S
        while time.monotonic() < until:
            with suppress(httpx.TransportError):
                url = f"{self.url}/health"
                httpx.get(url, timeout=service.TIMEOUT_S, trust_env=False).raise_for_status()
                return
            time.sleep(0.05)
        raise AssertionError("a worker did not start")

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self.down.append((time.monotonic(), math.inf))
            self._process.kill()
            self._process.wait()


class Gateway(service.Service):
    """A gateway in front of workers, with its memo in Redis."""

    def __init__(self, workers: list[Worker], redis: RedisServer, origin: str, model: Path) -> None:
        named = [text for worker in workers for text in ("--worker", worker.specification)]
        settings = {
            "memo_url": redis.url,
            "models": {"tiny": str(model)},
            "url_hosts": [origin.removeprefix("http://")],
            "url_networks": ["127.0.0.0/8"],
            "gateway.media_urls": "fetch",
            "gateway.health_interval_s": "0.5",
            "gateway.health_timeout_s": "10",
        }
        super().__init__(*named, settings=settings, program=COMMAND, env=service.environment())
        self.wait_until_listening()
        httpx.get(f"{self.url}/ready", timeout=60, trust_env=False).raise_for_status()

    @property
    def processes(self) -> list[int]:
        """The gateway's process and all below it."""
        return _with_children(self.process.pid)

    def count(self, metric: str) -> float:
        """Return a metric's value, summed over its labels."""
        with self.new_client(trust_env=False) as client:
            return service.count(client, metric)

    def index(self) -> dict[str, Any]:
        """Return the sums of the workers' gaps, replays, drops and blocks, as `/workers` has them."""
        with self.new_client(trust_env=False) as client:
            workers = client.get("/workers").json()["workers"]
        names = "gaps", "replays", "drops", "blocks"
        return {name: sum(one[name] for one in workers) for name in names}


def _with_children(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [pid, *(one for child in children for one in _with_children(int(child)))]


class Environment(NamedTuple):
    """All processes of a soak, and the images that it has by URL."""

    workers: list[Worker]
    redis: RedisServer
    gateway: Gateway
    origin: str
    files: list[bytes]


@contextmanager
def started(folder: Path) -> Iterator[Environment]:
    """Everything started, and everything stopped."""
    served = folder / "images"
    served.mkdir()
    files = write_images(served)
    with ExitStack() as stack:
        origin = stack.enter_context(file_server(served))
        redis = RedisServer(folder)
        stack.callback(redis.kill)
        workers = [Worker() for _ in range(WORKERS)]
        for worker in workers:
            stack.callback(worker.kill)
            worker.start()
        for worker in workers:
            worker.wait_until_ready()
        models.write("qwen2_vl", folder / "model")
        gateway = Gateway(workers, redis, origin, folder / "model")
        stack.callback(gateway.kill)
        yield Environment(workers, redis, gateway, origin, files)
