"""Requests that an engine refuses or never computes, to falsify what the gateway expects of workers.

The blocks of a prompt count as sent only when its worker has answered.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.gateway import create_gateway
from mmhash_service.settings import Settings
from tests.support.gateway import EngineProcess
from tests.support.images import image_part
from tests.support.in_process import Server, running
from tests.support.service import Service
from tests.support.waiting import wait_until

UNREACHABLE = "http://127.0.0.1:1"
PATH = "/v1/chat/completions"


@pytest.fixture
def client(gateway: Service) -> Iterator[httpx.Client]:
    """A client of a gateway with one worker, whose events do not name what it holds."""
    with gateway.new_client() as client:
        yield client


@pytest.fixture
def server(worker: EngineProcess) -> Iterator[Server]:
    """A gateway in this process, before that worker and one that cannot be reached."""
    gateway = GatewaySettings(worker_list=(worker.url, UNREACHABLE), health_timeout_s=20)
    with running(create_gateway(Settings(), gateway)) as server:
        yield server


def crowding(server: Server) -> dict[str, float]:
    """Return how many conversations the workers have begun, by estimate."""
    found: dict[str, float] = server.uvicorn.config.app.state.resources.fleet.crowding()
    return found


def chat(image: str, **more: Any) -> dict[str, Any]:
    content = [image_part(image.encode())]
    return {"messages": [{"role": "user", "content": content}], **more}


def expected(client: httpx.Client, image: str) -> int:
    (worker,) = client.post("/route", json=chat(image)).json()["workers"]
    tokens: int = worker.get("expected_tokens", 0)
    return tokens


def test_a_refused_request_changes_nothing_that_is_known_of_a_worker(client: httpx.Client) -> None:
    assert client.post(PATH, json=chat("a")).status_code == 200
    known = expected(client, "a")
    assert known > 0
    for number in range(50):  # twice as many as a worker is assumed to have room for
        assert client.post(PATH, json=chat(f"refused {number}", status=400)).status_code == 400
    assert expected(client, "a") == known
    assert expected(client, "refused 49") == 0


def test_a_request_that_is_refused_or_has_no_body_begins_no_conversation(
    server: Server, worker: EngineProcess
) -> None:
    """New conversations would avoid a worker to which a client sends what its engine refuses."""
    before = crowding(server)
    for _ in range(10):
        assert server.client.post(PATH, json=chat("x", status=400)).status_code == 400
        assert server.client.get("/v1/models").status_code == 200
    assert crowding(server) == before
    for _ in range(10):
        assert server.client.post(PATH, json=chat("x")).status_code == 200
    assert crowding(server)[worker.url] > before[worker.url]


def test_a_request_that_a_client_leaves_before_its_answer_is_not_known(
    client: httpx.Client,
) -> None:
    with pytest.raises(httpx.ReadTimeout):
        client.post(PATH, json=chat("left", mode="hang"), timeout=httpx.Timeout(60, read=1))
    wait_until(lambda: not client.get("/workers").json()["workers"][0]["requests"])
    assert expected(client, "left") == 0
