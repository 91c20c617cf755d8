"""`mmhash health`: whether the server answers, for the check of a container."""

import http.client
import socket
from contextlib import closing
from typing import Annotated
from urllib.parse import urlsplit

import typer

from mmhash.cli.report import say

_TIMEOUT_S = 5.0


def check_health(
    url: Annotated[
        str, typer.Argument(help="Where it listens: http://HOST:PORT, or unix:PATH.")
    ] = "http://127.0.0.1:8780",
    *,
    ready: Annotated[bool, typer.Option("--ready", help="Ask whether calls may come.")] = False,
) -> None:
    """Ask the server whether it answers; the exit status says so too."""
    path = "/ready" if ready else "/health"
    try:
        with closing(_connection(url)) as connection:
            connection.request("GET", path)
            with connection.getresponse() as answer:
                status, words = answer.status, answer.reason
    except (OSError, ValueError, http.client.HTTPException) as error:
        say(f"{url}: no answer ({type(error).__name__})")
        raise typer.Exit(1) from error
    say(f"{url}: {status} {words}")
    if status != http.client.OK:
        raise typer.Exit(1)


def _connection(url: str) -> http.client.HTTPConnection:
    if url.startswith("unix:"):
        return _UnixConnection(url.removeprefix("unix:"), timeout=_TIMEOUT_S)
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        raise ValueError("a server is at http://HOST:PORT or unix:PATH")
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)


class _UnixConnection(http.client.HTTPConnection):
    """To a socket that has a path instead of an address."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
