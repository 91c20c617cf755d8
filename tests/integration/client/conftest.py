"""Both clients behind one interface, and services in processes of their own."""

from collections.abc import Iterator
from typing import Any

import pytest

from mmhash.client import Client
from tests.support.blocking import BlockingAsyncClient
from tests.support.service import serving

TENANTS = {"acme": "11" * 32}


@pytest.fixture(params=[Client, BlockingAsyncClient], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Any:
    """Either client, made and used the same way."""
    return request.param


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A service that reads shared memory and has a tenant."""
    with serving(settings={"shm": True, "tenants": TENANTS}) as service:
        yield service.url


@pytest.fixture(scope="session")
def url_without_shm() -> Iterator[str]:
    with serving() as service:
        yield service.url
