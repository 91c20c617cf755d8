"""`GET /workers` of a large fleet."""

import asyncio
from types import SimpleNamespace
from typing import Any

from mmhash.kvindex import Index
from mmhash_service.api.schemas.fleet import WorkersAnswer
from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker import Worker
from mmhash_service.gateway.worker_spec import parse_worker
from mmhash_service.routes.fleet import workers
from mmhash_service.runtime.capacity import Limits
from mmhash_service.runtime.concurrency import TURN
from mmhash_service.settings import Settings


def test_the_states_of_many_workers_are_made_in_turns() -> None:
    """Those of 1000 took the event loop 15 to 30 ms."""
    settings = GatewaySettings()
    fleet = Fleet(settings)
    for number in range(10 * TURN):
        url = f"http://w{number}:1"
        fleet.workers[url] = Worker(parse_worker(url), settings)
    fleet.index = Index(health=lambda _: True)
    router = SimpleNamespace(policy="least-load")
    state = SimpleNamespace(fleet=fleet, router=router, limits=Limits(Settings()))
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
