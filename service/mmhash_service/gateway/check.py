"""`mmhash gateway --check`: connect to each worker and its KV events, and plan a prompt for it."""

import asyncio
import time
from typing import NamedTuple

from mmhash.errors import MMHashError
from mmhash.kvindex import WorkerStats
from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker import Worker
from mmhash_service.models import Models

# If KV events do not connect within this time, their address is probably wrong.
_PATIENCE_S = 5.0
_POLL_S = 0.05

_PROMPT = {"messages": [{"role": "user", "content": "Say hello."}]}


class WorkerCheck(NamedTuple):
    """What the check found out about a worker, and the problems with it."""

    url: str
    engine: str | None
    release: str
    models: list[str]
    events: str | None
    problems: list[str]


async def check_workers(gateway: GatewaySettings, models: Models) -> list[WorkerCheck]:
    """Connect to every worker and its KV events, and plan a prompt for it."""
    fleet = Fleet(gateway)
    await fleet.open()
    try:
        stats = await _connected(fleet)
        return [
            WorkerCheck(
                url,
                worker.engine.name if worker.engine else None,
                worker.release,
                sorted(worker.models),
                worker.described.events,
                [*_problems(worker, stats.get(url)), *_plan_problems(worker, models)],
            )
            for url, worker in fleet.workers.items()
        ]
    finally:
        await fleet.close()


async def _connected(fleet: Fleet) -> dict[str, WorkerStats]:
    """Return the state of the KV events once all are connected, or after the time limit."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        stats = fleet.index.stats().workers
        are_connected = all(one.is_connected for one in stats.values())
        if are_connected or time.monotonic() > deadline:
            return stats
        await asyncio.sleep(_POLL_S)


def _problems(worker: Worker, stats: WorkerStats | None) -> list[str]:
    found = [worker.probe_failure] if worker.probe_failure else []
    found += [f"{member}= is unknown: {why}" for member, why in worker.described.lacking.items()]
    if stats is None:
        found.append("the worker has no KV events, so nothing counts as cached there")
    elif not stats.is_connected:
        found.append(f"nothing answers at events={worker.described.events}")
    elif stats.failed_replays:
        found.append("nothing answers at replay=")
    return found


def _plan_problems(worker: Worker, models: Models) -> list[str]:
    """Return why prompts cannot be planned for a worker. A missing engine is reported elsewhere."""
    if worker.engine is None:
        return []
    found = [] if models.names else ["the setting models is empty, so the gateway plans no request"]
    for name in models.names:
        try:
            models.find(name).plan(
                _PROMPT | {"model": name}, worker.engine.name, **worker.engine.plan_options()
            )
        except MMHashError as error:
            found.append(f"mmhash cannot plan a prompt of {name}: {error}")
    return found
