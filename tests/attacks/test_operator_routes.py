"""A client that flushes caches, ends the requests of others or replaces weights, by operators' routes.

The gateway forwards none of them: operators reach the workers themselves.
"""

from collections.abc import Iterator

import httpx
import pytest

from mmhash.engines.caller_fields import OPERATOR_ROUTES
from tests.support.gateway import EngineProcess, engines, gateway_before
from tests.support.service import Service


@pytest.fixture(scope="module")
def worker() -> Iterator[EngineProcess]:
    with engines(1) as (started,):
        yield started


@pytest.fixture(scope="module")
def gateway(worker: EngineProcess) -> Iterator[Service]:
    # With the workers' key, all clients of the gateway would have it.
    with gateway_before([worker.url], settings={"gateway.worker_api_key": "key"}) as service:
        yield service


@pytest.fixture(scope="module")
def client(gateway: Service) -> Iterator[httpx.Client]:
    with gateway.new_client() as client:
        yield client


@pytest.mark.parametrize("route", sorted(OPERATOR_ROUTES))
def test_no_client_reaches_a_route_of_operators(
    client: httpx.Client, worker: EngineProcess, route: str
) -> None:
    before = worker.state()["seen"]
    for method in ("GET", "POST", "PUT", "DELETE"):
        answer = client.request(method, f"/{route}")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
    assert worker.state()["seen"] == before


@pytest.mark.parametrize(
    "target",
    [
        b"/flush_cache/",
        b"//flush_cache",
        b"/./flush_cache",
        b"/flush%5fcache",
        b"/%66lush_cache?a=b",
        b"http://g/flush_cache",
        b"/dumper/any",
        b"/hicache/storage-backend/clear",
        b"/v1//load_lora_adapter",
    ],
)
def test_no_spelling_hides_one(gateway: Service, worker: EngineProcess, target: bytes) -> None:
    before = worker.state()["seen"]
    with gateway.connect() as connection:
        connection.sendall(b"POST %b HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n" % target)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404 "), answer
    assert worker.state()["seen"] == before


@pytest.mark.parametrize("path", ["/v1/flush_cache_of_mine", "/flush", "/v1/x/flush_cache", "/"])
def test_others_pass(client: httpx.Client, path: str) -> None:
    assert client.get(path).json()["path"] == path
