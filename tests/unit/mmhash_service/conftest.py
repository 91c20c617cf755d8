"""The application on a server in a thread of this process, and a host that it fetches from."""

from collections.abc import Iterator

import httpx
import pytest

from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.in_process import Server, running
from tests.support.origin import Origin

MAX_BODY = 3 << 20
MAX_PIXELS = 640 * 480
TENANTS = {"acme": "11" * 32, "umbrella": "22" * 32}


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The app, with limits that a test can reach."""
    settings = Settings(
        decoders=1,
        max_body_bytes=MAX_BODY,
        max_pixels=MAX_PIXELS,
        tenants=TENANTS,
    )
    with running(create_app(settings)) as server:
        yield server


@pytest.fixture(scope="session")
def client(server: Server) -> httpx.Client:
    """A client of the server."""
    return server.client


@pytest.fixture
def origin() -> Iterator[Origin]:
    """A host on 127.0.0.1."""
    host = Origin()
    yield host
    host.close()
