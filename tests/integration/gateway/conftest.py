"""Two small engines and a gateway in front, for tests that leave them running."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.gateway import EngineProcess, engines, gateway_before
from tests.support.service import Service


@pytest.fixture(scope="module")
def fleet() -> Iterator[list[EngineProcess]]:
    with engines(2) as started:
        yield started


@pytest.fixture(scope="module")
def gateway(fleet: list[EngineProcess]) -> Iterator[Service]:
    workers = [f"{one.url},engine=vllm@0.32.0" for one in fleet]
    settings = {"tenants": {"acme": "11" * 32}}
    with gateway_before(workers, settings=settings) as service:
        yield service


@pytest.fixture(scope="module")
def client(gateway: Service) -> Iterator[httpx.Client]:
    with gateway.new_client() as client:
        yield client
