"""The application on a server in a thread of this process, and a host that it fetches from."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from io import BytesIO

import httpx
import pytest
from fastapi import FastAPI
from PIL import Image

from mmhash_service.app import create_app
from mmhash_service.settings import Settings
from tests.support import in_process
from tests.support.in_process import Server
from tests.support.origin import Origin

MAX_BODY = 3 << 20
MAX_PIXELS = 640 * 480
MAX_ITEMS = 50
TENANTS = {"acme": "11" * 32, "umbrella": "22" * 32}


@pytest.fixture(scope="session")
def running() -> Callable[[FastAPI], AbstractContextManager[Server]]:
    """Run another application."""
    return in_process.running


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The app, with limits that a test can reach."""
    settings = Settings(
        decoders=1,
        max_body_bytes=MAX_BODY,
        max_pixels=MAX_PIXELS,
        max_items=MAX_ITEMS,
        tenants=TENANTS,
        shm=True,
    )
    with in_process.running(create_app(settings)) as server:
        yield server


@pytest.fixture(scope="session")
def client(server: Server) -> httpx.Client:
    """A client of the server."""
    return server.client


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


@pytest.fixture
def origin() -> Iterator[Origin]:
    """A host on 127.0.0.1."""
    host = Origin()
    yield host
    host.close()


@pytest.fixture(scope="session")
def new_origin() -> type[Origin]:
    """The class of such hosts, for other addresses and TLS; the test closes them."""
    return Origin
