"""A Redis server, and replicas that wait for each other in it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.redis import RedisServer, running_redis

ROOT = Path(__file__).parents[3]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A plain Redis server."""
    with running_redis(tmp_path) as server:
        yield server


class Replicas:
    """Processes that want the same result at the same time."""

    def __init__(
        self, redis: RedisServer, log: Path, number: int, seconds: float, timeout_s: float
    ) -> None:
        self.log, self._number, self._killed = log, number, 0
        log.touch()
        command = [sys.executable, "-m", "tests.support.claim_workers", redis.url]
        self.process = subprocess.Popen(
            [*command, str(log), str(seconds), str(number), str(timeout_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert [self.process.stdout.readline() for _ in range(number)] == ["ready\n"] * number

    def start(self) -> None:
        """Let all of them begin."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def computations(self) -> list[int]:
        """Return the processes that have begun to compute, in order."""
        lines = self.log.read_text().splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith("begin")]

    def wait_for_computations(self, number: int) -> list[int]:
        """Return the processes that compute, once there are so many."""
        while len(begun := self.computations()) < number:
            time.sleep(0.005)
        return begun

    def kill(self, pid: int) -> None:
        """Kill one of them."""
        os.kill(pid, signal.SIGKILL)
        self._killed += 1

    def check_results(self) -> None:
        """Raise unless each that was not killed has the result."""
        output, _ = self.process.communicate(timeout=120)
        results = [line.split()[0] for line in output.splitlines()]
        assert results == ["result"] * (self._number - self._killed)

    def end(self) -> None:
        """End all of them."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def replicas(redis: RedisServer, tmp_path: Path) -> Iterator[Callable[..., Replicas]]:
    """Start replicas."""
    started: list[Replicas] = []

    def start(number: int, seconds: float, timeout_s: float = 20) -> Replicas:
        # On a busy machine Redis may take longer than the service would wait for it.
        started.append(Replicas(redis, tmp_path / "log", number, seconds, timeout_s))
        return started[-1]

    yield start
    for each in started:
        each.end()
