"""Real servers: the service in processes of its own, and Redis, each on a port that is free."""

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from redis import Redis
from redis.exceptions import ConnectionError as NotThere


class RedisServer:
    """A Redis server that can be stopped, frozen and brought back."""

    def __init__(self, command: list[str], folder: Path, arguments: tuple[str, ...]) -> None:
        self.port = _free_port()
        plain = ("--save", "", "--bind", "127.0.0.1", "--dir", str(folder))
        self._command = [*command, "--port", str(self.port), *plain, *arguments]
        self.start()

    def start(self) -> None:
        """Run it, until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        with self.client() as client:
            while True:
                try:
                    client.ping()
                    break
                except NotThere:
                    assert self._process.poll() is None
                    time.sleep(0.01)

    def client(self) -> Any:
        """A plain client of it."""
        return closing(Redis(port=self.port))

    def kill(self) -> None:
        """End it at once; what it held is lost."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Let it answer nobody, and hold on to every connection."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)


def _free_port() -> int:
    # Of a cluster's node another port has to be free too, 10000 above this one.
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            if port < 50_000:
                try:
                    other.bind(("127.0.0.1", port + 10_000))
                except OSError:
                    continue
                return port


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Start a Redis server with more arguments, and the settings of a file."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("needs redis-server (apt-get install redis-server)")
    started: list[RedisServer] = []

    def start(*arguments: str, config: Path | None = None) -> RedisServer:
        folder = tmp_path / f"redis{len(started)}"
        folder.mkdir()
        command = [binary] if config is None else [binary, str(config)]
        started.append(RedisServer(command, folder, arguments))
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def redis(start_redis: Callable[..., RedisServer]) -> RedisServer:
    """A plain Redis server."""
    return start_redis()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., httpx.Client]]:
    """Run the service in a process of its own, under settings, and give a client of it."""
    with ExitStack() as stack:
        started = 0

        def serve(*settings: str, before: tuple[str, ...] = ()) -> httpx.Client:
            nonlocal started
            started += 1
            return stack.enter_context(_serving(tmp_path / f"log{started}", settings, before))

        yield serve


@contextmanager
def _serving(
    log: Path, settings: tuple[str, ...], before: tuple[str, ...]
) -> Iterator[httpx.Client]:
    command = [*before, sys.executable, "-m", "mmhash", "serve", "--port", "0"]
    command += [word for setting in settings for word in ("--set", setting)]
    # A file: a pipe that nobody reads would be full after some hundred calls.
    with log.open("w") as stderr, subprocess.Popen(command, stderr=stderr) as process:
        try:
            while (found := re.search(r"running on (http://[^ \"]+)", log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                time.sleep(0.01)
            with httpx.Client(base_url=found[1], timeout=60) as client:
                yield client
        finally:
            process.terminate()
            assert process.wait(60) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
        assert '"level": "error"' not in log.read_text()


@pytest.fixture(scope="session")
def ask() -> Callable[..., dict[str, Any]]:
    """Post an image for its pixels, and return the item."""

    def ask(client: httpx.Client, image: bytes, **headers: str) -> dict[str, Any]:
        headers = {"content-type": "image/png", **headers}
        answer = client.post("/hash", params={"of": "pixels"}, content=image, headers=headers)
        assert answer.status_code == 200, answer.text
        (item,) = answer.json()["items"]
        return item  # type: ignore[no-any-return]

    return ask


@pytest.fixture(scope="session")
def count() -> Callable[..., float]:
    """Return the value of a metric of a service with these labels."""

    def count(client: httpx.Client, name: str, **labels: str) -> float:
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        total = 0.0
        for line in client.get("/metrics").text.splitlines():
            found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
            if found and wanted <= set((found[1] or "").split(",")):
                total += float(found[2])
        return total

    return count


@pytest.fixture(scope="session")
def images() -> list[bytes]:
    """Small images, each another."""

    def image(number: int) -> bytes:
        body = BytesIO()
        Image.frombytes("RGB", (8, 8), number.to_bytes(192)).save(body, "PNG")
        return body.getvalue()

    return [image(number) for number in range(400)]
