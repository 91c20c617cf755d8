"""Runs real processes to test the gateway: small engines, and `mmhash gateway` before them."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support import preloaded
from tests.support.ports import free_port
from tests.support.service import FEW, TIMEOUT_S, Service, serving

COMMAND = (sys.executable, "-m", "mmhash", "gateway", *FEW)

# The gateway notices a crash within a second, but a slow worker stays healthy.
QUICK = {
    "gateway.health_interval_s": "0.1",
    "gateway.health_timeout_s": "20",
}


class EngineProcess:
    """A small engine, which can be killed and started again at its address."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.plugin = ""
        self.process: preloaded.Process | None = None

    def start(self) -> None:
        """Start the engine, and wait until it answers."""
        self.process = preloaded.Process(
            "tests.support.engine_worker",
            self.name,
            str(self.port),
            env=os.environ | {"MMHASH_PLUGIN": self.plugin},
        )
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            try:
                if self._get("/health").status_code == 200:
                    return
            except httpx.TransportError:
                assert self.process.poll() is None, f"{self.name} has exited"
                time.sleep(0.02)
        raise AssertionError(f"{self.name} did not start")

    def state(self) -> dict[str, Any]:
        """Return what the engine has seen."""
        return self._get("/state").json()

    def _get(self, path: str) -> httpx.Response:
        # Do not load certificate authorities: that takes CPU.
        return httpx.get(f"{self.url}{path}", timeout=TIMEOUT_S, verify=False)

    def send_signal(self, number: int) -> None:
        """Send the engine a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the engine at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextmanager
def engines(count: int) -> Iterator[list[EngineProcess]]:
    """Run small engines."""
    with ExitStack() as stack:
        started = []
        for number in range(count):
            engine = EngineProcess(f"w{number}")
            stack.callback(engine.kill)
            engine.start()
            started.append(engine)
        yield started


@contextmanager
def gateway_before(
    workers: list[str], *arguments: str, settings: dict[str, Any] | None = None, **options: Any
) -> Iterator[Service]:
    """Run a gateway in front of these workers."""
    named = [text for spec in workers for text in ("--worker", spec)]
    chosen = QUICK | (settings or {})
    with serving(*named, *arguments, settings=chosen, program=COMMAND, **options) as service:
        yield service


def healthy(client: httpx.Client) -> list[bool]:
    """Return for each worker of a gateway whether it is healthy."""
    return [one["healthy"] for one in client.get("/workers").json()["workers"]]


def replace(file: Path, text: str) -> None:
    """Replace a file as a whole, as a mounted ConfigMap is."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)
