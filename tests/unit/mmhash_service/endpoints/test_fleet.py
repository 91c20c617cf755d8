"""`GET /workers` of a large fleet, and the JSON of `POST /route`."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from mmhash.kvindex import Index
from mmhash_service.endpoints.fleet import workers
from mmhash_service.endpoints.schemas.fleet import WorkersAnswer
from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker import Worker
from mmhash_service.gateway.worker_spec import parse_worker
from mmhash_service.http.app import create_app
from mmhash_service.limits.capacity import Limits
from mmhash_service.limits.threads import TURN
from mmhash_service.settings import Settings
from tests.support import in_process, prompt_models

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Bonjour à tous."}]}


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service with a model and one worker, which nobody answers."""
    folder = prompt_models.write_qwen2_vl(tmp_path_factory.mktemp("tiny"))
    settings = Settings(models={"tiny": folder}, decoders=1)
    gateway = GatewaySettings(worker_list=("http://127.0.0.1:9,engine=vllm@0.32.0",))
    with in_process.running(create_app(settings, gateway)) as server:
        yield server.client


def test_the_request_comes_back_with_its_plan_or_without(router: httpx.Client) -> None:
    answer = router.post("/route", json=CHAT).json()
    assert answer["plan"]["tokens"] > 0
    assert answer["request"] == CHAT
    unplanned = {"model": "tiny", "messages": []}
    answer = router.post("/route", json=unplanned).json()
    assert (answer["plan"], answer["request"]) == (None, unplanned)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "tiny", "messages": [{"role": "user", "content": "\xff"}]}',
        b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}], "x": "\xff"}',
        b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}], "x": NaN}',
        b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}]} x',
        b'[{"model": "tiny", "messages": [{"role": "user", "content": "x"}]}]',
    ],
)
def test_a_body_that_is_not_json_has_no_plan(router: httpx.Client, body: bytes) -> None:
    answer = router.post("/route", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["title"]) == (422, "Invalid JSON")


def test_the_states_of_many_workers_are_made_in_turns() -> None:
    """Those of 1000 took the event loop 15 to 30 ms."""
    settings = GatewaySettings()
    fleet = Fleet(settings)
    for number in range(10 * TURN):
        url = f"http://w{number}:1"
        fleet.workers[url] = Worker(parse_worker(url), settings)
    fleet.index = Index(health=lambda _: True)
    router = SimpleNamespace(policy="least-load")
    resources = SimpleNamespace(fleet=fleet, router=router, limits=Limits(Settings()))
    state = SimpleNamespace(resources=resources)
    request: Any = SimpleNamespace(app=SimpleNamespace(state=state))

    async def answer() -> tuple[Any, int]:
        turns = 0
        task = asyncio.create_task(workers(request))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return await task, turns

    try:
        response, turns = asyncio.run(answer())
    finally:
        fleet.index.stop()
    assert turns >= 10
    listed = WorkersAnswer.model_validate_json(response.body)
    assert [one.url for one in listed.workers] == list(fleet.workers)
