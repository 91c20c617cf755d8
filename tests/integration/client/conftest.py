"""Both clients behind one interface, and services in their own processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mmhash.client import Client
from tests.support import prompt_models
from tests.support.blocking import BlockingAsyncClient
from tests.support.service import Service, serving

TENANTS = {"acme": "11" * 32}


@pytest.fixture(params=[Client, BlockingAsyncClient], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Any:
    """Either client. Both are created and used in the same way."""
    return request.param


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the service's model `tiny`."""
    return prompt_models.write_qwen2_vl(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def url(folder: Path) -> Iterator[str]:
    """A service that has a tenant and a model."""
    with serving(settings={"tenants": TENANTS, "models": {"tiny": str(folder)}}) as service:
        yield service.url


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on a Unix socket, where it reads shared memory."""
    with serving("--uds", str(tmp_path_factory.mktemp("service") / "socket")) as service:
        yield service
