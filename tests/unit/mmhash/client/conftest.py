"""The service in a process of its own, a small server that answers as it is told, and both clients."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self

import pytest

from mmhash.client import AsyncClient, Client

TENANTS = {"acme": "11" * 32}


@contextmanager
def _serving(*arguments: str) -> Iterator[str]:
    """The service as a user starts it, and where it is."""
    command = [sys.executable, "-m", "mmhash", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r"running on (?:unix:)?(\S+)", process.stderr.readline())
        # The log goes on, and has to go somewhere.
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        try:
            assert found is not None
            yield found[1]
        finally:
            process.terminate()
            process.wait(30)
            drain.wait(30)
    assert process.returncode == 0


@pytest.fixture(scope="session")
def serving() -> Callable[..., Any]:
    return _serving


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A service that reads shared memory and knows a tenant."""
    with _serving("--set", "shm=true", "--set", f"tenants={json.dumps(TENANTS)}") as where:
        yield where


@pytest.fixture(scope="session")
def url_without_shm() -> Iterator[str]:
    with _serving() as where:
        yield where


class Waited:
    """An AsyncClient whose calls are waited for, so that one test does for both clients."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._arguments, self._options = arguments, options

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._open())
        return self

    async def _open(self) -> AsyncClient:
        return AsyncClient(*self._arguments, **self._options)

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found
        return lambda *arguments, **options: self._runner.run(found(*arguments, **options))


@pytest.fixture(params=[Client, Waited], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Any:
    """Either client, to be made and used the same way."""
    return request.param


class CacheStatus:
    """A server that gives the answers that it is told, the last of them again and again."""

    def __init__(self, *answers: tuple[int, dict[str, str], bytes] | None) -> None:
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        told, left = self, list(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                told.bodies.append(self.rfile.read(length))
                self._answer()

            def do_GET(self) -> None:
                told.bodies.append(b"")
                self._answer()

            def _answer(self) -> None:
                told.paths.append(self.path)
                answer = left.pop(0) if len(left) > 1 else left[0]
                if answer is None:  # it hangs up
                    return
                status, headers, content = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="session")
def told() -> type[CacheStatus]:
    return CacheStatus
