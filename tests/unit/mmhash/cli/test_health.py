"""`mmhash health`: what a container's check sees."""

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import UnixStreamServer
from threading import Thread

import pytest
from typer.testing import CliRunner

from mmhash.cli.app import app


class Handler(BaseHTTPRequestHandler):
    """Well, but not ready."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 503)
        self.end_headers()

    def address_string(self) -> str:  # a Unix socket has no address
        return ""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=["http", "unix"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "s"
    if request.param == "unix":
        server: UnixStreamServer | HTTPServer = UnixStreamServer(str(path), Handler)
        where = f"unix:{path}"
    else:
        server = HTTPServer(("127.0.0.1", 0), Handler)
        where = f"http://127.0.0.1:{server.server_port}"
    with server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield where
        server.shutdown()
        thread.join()


def test_the_exit_status_says_whether_it_answers(url: str) -> None:
    well = CliRunner().invoke(app, ["health", url])
    assert (well.exit_code, well.stdout) == (0, f"{url}: 200 OK\n")
    unready = CliRunner().invoke(app, ["health", url, "--ready"])
    assert (unready.exit_code, unready.stdout) == (1, f"{url}: 503 Service Unavailable\n")


def test_a_port_without_a_server_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        here = f"http://127.0.0.1:{free.getsockname()[1]}"
        for url, reason in {
            here: "Connection refused",
            f"unix:{tmp_path / 'none'}": "No such file or directory",
            "ftp://x": "the address of a server is HOST:PORT",
            "http://a:b": "Port could not be cast",
        }.items():
            result = CliRunner().invoke(app, ["health", url])
            assert result.exit_code == 1
            assert result.stdout.startswith(f"{url}: no response ({reason}")


def test_an_address_without_a_scheme(url: str) -> None:
    if url.startswith("http://"):
        address = url.removeprefix("http://")
        done = CliRunner().invoke(app, ["health", address])
        assert (done.exit_code, done.stdout) == (0, f"{address}: 200 OK\n")
