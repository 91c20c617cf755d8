"""A real server in a thread of this process, on a port that is free."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BytesIO
from threading import Thread
from typing import Any, NamedTuple

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from PIL import Image

from mmhash_service.app import create_app
from mmhash_service.settings import Settings

MAX_BODY = 3 << 20
MAX_PIXELS = 640 * 480
MAX_ITEMS = 50
TENANTS = {"acme": "11" * 32, "umbrella": "22" * 32}


class Server(NamedTuple):
    """A server that answers: its client, its address and its app."""

    client: httpx.Client
    address: tuple[str, int]
    uvicorn: uvicorn.Server

    def wait_until_idle(self) -> None:
        """Return when the server has ended the handling of every request."""
        while self.uvicorn.server_state.tasks:
            time.sleep(0.001)

    def send_raw(self, request: bytes) -> bytes:
        """Send bytes as they are, and return what comes until the server closes."""
        with socket.create_connection(self.address, timeout=60) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))


@contextmanager
def _running(app: FastAPI) -> Iterator[Server]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = listener.getsockname()
        config = uvicorn.Config(app, loop="uvloop", http="httptools", ws="none", log_config=None)
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.001)
            with httpx.Client(base_url="http://{}:{}".format(*address), timeout=60) as client:
                yield Server(client, address, server)
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="session")
def running() -> Callable[[FastAPI], AbstractContextManager[Server]]:
    """Run an app of the test's own."""
    return _running


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The app, with limits that a test can reach."""
    settings = Settings(
        max_body_bytes=MAX_BODY,
        max_pixels=MAX_PIXELS,
        max_items=MAX_ITEMS,
        tenants=TENANTS,
        shm=True,
    )
    with _running(create_app(settings)) as server:
        yield server


@pytest.fixture(scope="session")
def client(server: Server) -> httpx.Client:
    """A client of the server."""
    return server.client


@pytest.fixture(scope="session")
def items_of() -> Callable[[httpx.Response], list[dict[str, Any]]]:
    """The items of a good answer."""

    def items_of(answer: httpx.Response) -> list[dict[str, Any]]:
        assert answer.status_code == 200, answer.text
        assert answer.json().keys() == {"items", "elapsed_ms"}
        return answer.json()["items"]

    return items_of


@pytest.fixture(scope="session")
def problem_of() -> Callable[[httpx.Response], tuple[int, str]]:
    """The status and the name of a problem."""

    def problem_of(answer: httpx.Response) -> tuple[int, str]:
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        assert answer.json()["status"] == answer.status_code
        return answer.status_code, answer.json()["type"].removeprefix("urn:mmhash:problem:")

    return problem_of


@pytest.fixture(scope="session")
def encode() -> Callable[..., bytes]:
    """Encode frames of noise, the same for the same arguments."""

    def encode(
        name: str, mode: str = "RGB", size: tuple[int, int] = (16, 12), frames: int = 1
    ) -> bytes:
        nbytes = len(Image.new(mode, size).tobytes())
        images = [
            Image.frombytes(mode, size, bytes((i * i + 7 * number) % 251 for i in range(nbytes)))
            for number in range(frames)
        ]
        more = {"save_all": True, "append_images": images[1:]} if frames > 1 else {}
        body = BytesIO()
        images[0].save(body, name, **more)
        return body.getvalue()

    return encode


Answer = bytes | Callable[[socket.socket], None]


class Origin:
    """A host that others fetch from: it answers a path with the bytes, or the acts, of a test."""

    def __init__(self, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._listener = socket.create_server((address, 0))
        self.port = self._listener.getsockname()[1]
        self.answers: dict[str, Answer] = {}
        # The heads of the requests, and how many connections they came by.
        self.heads: list[str] = []
        self.connections = 0
        self._open: list[socket.socket] = []
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()

    @staticmethod
    def ok(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
        """A good answer."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
        return "\r\n".join(lines).encode("latin-1") + body

    def close(self) -> None:
        """Hang up on everybody."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                self._threads.append(Thread(target=self._converse, args=(connection,)))
                self._threads[-1].start()

    def _converse(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                while head := self._read_head(connection):
                    self.heads.append(head)
                    answer = self.answers[head.split(" ", 2)[1]]
                    if callable(answer):
                        answer(connection)
                        return
                    connection.sendall(answer)

    @staticmethod
    def _read_head(connection: socket.socket) -> str:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (piece := connection.recv(65536)):
                return ""
            head += piece
        return head.decode("latin-1")


@pytest.fixture
def origin() -> Iterator[Origin]:
    """A host on 127.0.0.1."""
    host = Origin()
    yield host
    host.close()


@pytest.fixture(scope="session")
def new_origin() -> type[Origin]:
    """Such a host elsewhere, or behind TLS; who makes it closes it."""
    return Origin
