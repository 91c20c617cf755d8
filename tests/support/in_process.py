"""Runs the application on a real server, in a thread of this process and on a free port."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import httpx
import uvicorn
from fastapi import FastAPI

from mmhash_service.server.protocol import BoundedProtocol
from tests.support.decoders import LateDecoders
from tests.support.service import read_all


class Server(NamedTuple):
    """A running server: its client, its address and its application."""

    client: httpx.Client
    address: tuple[str, int]
    uvicorn: uvicorn.Server

    def wait_until_idle(self) -> None:
        """Wait until no request is being handled."""
        while self.uvicorn.server_state.tasks:
            time.sleep(0.001)

    def send_raw(self, request: bytes) -> bytes:
        """Send bytes as they are, and return what the server sends until it closes the connection."""
        with socket.create_connection(self.address, timeout=60) as connection:
            connection.sendall(request)
            return read_all(connection)


def start_decoders_late(app: FastAPI) -> None:
    """Start an application's decoders only before the first image or readiness probe."""
    resources = getattr(app.state, "resources", None)
    if resources is not None:  # a test's own small application has none
        resources.decoders.__class__ = LateDecoders


@contextmanager
def running(app: FastAPI, uds: Path | None = None) -> Iterator[Server]:
    """Run an application until the end of the block, with decoders only when they are needed."""
    start_decoders_late(app)
    with socket.socket(socket.AF_INET if uds is None else socket.AF_UNIX) as listener:
        listener.bind(("127.0.0.1", 0) if uds is None else str(uds))
        address = listener.getsockname() if uds is None else ("localhost", 80)
        protocol: Any = partial(BoundedProtocol, stall_timeout_s=60)
        config = uvicorn.Config(app, loop="uvloop", http=protocol, ws="none", log_config=None)
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.001)
            url = "http://{}:{}".format(*address)
            # Do not load certificate authorities: that takes CPU, and nothing here uses TLS.
            transport = httpx.HTTPTransport(verify=False, uds=None if uds is None else str(uds))
            with httpx.Client(base_url=url, timeout=60, transport=transport) as client:
                yield Server(client, address, server)
        finally:
            server.should_exit = True
            thread.join()
