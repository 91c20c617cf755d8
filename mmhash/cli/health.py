"""`mmhash health`: asks a server for its health, for example as a container's health check."""

import http.client
import socket
from contextlib import closing
from typing import Annotated
from urllib.parse import urlsplit

import typer

from mmhash.cli.report import say
from mmhash.errors import InputValueError
from mmhash.io.names import reason

_TIMEOUT_S = 5.0


def check_health(
    url: Annotated[
        str, typer.Argument(help="The server's address: HOST:PORT, http://HOST:PORT, or unix:PATH.")
    ] = "http://127.0.0.1:8780",
    *,
    ready: Annotated[bool, typer.Option("--ready", help="Check readiness for requests.")] = False,
) -> None:
    """Check a server: exit with 0 if it answers 200."""
    path = "/ready" if ready else "/health"
    try:
        with closing(_connection(url)) as connection:
            connection.request("GET", path)
            with connection.getresponse() as response:
                status, phrase = response.status, response.reason
    except (OSError, ValueError, http.client.HTTPException) as error:
        say(f"{url}: no response ({reason(error)})")
        raise typer.Exit(1) from error
    say(f"{url}: {status} {phrase}")
    if status != http.client.OK:
        raise typer.Exit(1)


def _connection(url: str) -> http.client.HTTPConnection:
    if url.startswith("unix:"):
        return _UnixConnection(url.removeprefix("unix:"), timeout=_TIMEOUT_S)
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or parts.hostname is None:
        raise InputValueError("the address of a server is HOST:PORT, http://HOST:PORT or unix:PATH")
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
