"""`POST /route` and `GET /workers`: the workers of a gateway, and their order for a request."""

from typing import Any

from fastapi import APIRouter, Request, Response
from msgspec import Raw
from msgspec.json import Encoder

from mmhash.kvindex import WorkerStats
from mmhash_service.bodies.json_body import read_json
from mmhash_service.bodies.parsing import parse_query
from mmhash_service.endpoints.long_response import LongResponse
from mmhash_service.endpoints.openapi import json_body, query_parameters
from mmhash_service.endpoints.schemas.fleet import (
    RouteAnswer,
    RouteQuery,
    WorkersAnswer,
    WorkerState,
)
from mmhash_service.gateway.policy import Ranked
from mmhash_service.gateway.request import read_request
from mmhash_service.gateway.resources import GatewayResources
from mmhash_service.gateway.router import Decision, Routing
from mmhash_service.gateway.worker import Worker
from mmhash_service.limits.threads import end_turn

router = APIRouter()

JSON = "application/json"

_ENCODER = Encoder()

# The cost of copying a request into the response, and of checking a request without a plan.
_BYTES_PER_US = 2000


_OPENAPI = {"parameters": query_parameters(RouteQuery), **json_body(None)}


@router.post("/route", openapi_extra=_OPENAPI, response_model=RouteAnswer)
async def route(request: Request) -> Response:
    """Return the request as its best worker would get it, and the workers, best first."""
    query = parse_query(request.query_params, RouteQuery)
    resources = GatewayResources.of(request)
    with resources.limits.admit() as admission:
        text = await read_json(request, resources.settings, admission)
        routed = await read_request(text, JSON, query.path, resources.work, is_prompt=True)
        _ = routed.document  # a body that is not JSON is refused
        routing = Routing(resources, request, routed, admission, is_counted=False)
        decision = await routing.decide()
        body = routed.text if decision.best is None else decision.prepared.body
        cost_us = len(body) / _BYTES_PER_US
        payload = await resources.work.run_sized(cost_us, _join, decision, body)
        return LongResponse(payload, resources.limits)


@router.get("/workers", response_model=WorkersAnswer)
async def workers(request: Request) -> Response:
    """Return the state of each worker."""
    resources = GatewayResources.of(request)
    fleet, stats = resources.fleet, resources.fleet.index.stats().workers
    states = []
    for number, (url, worker) in enumerate(list(fleet.workers.items())):
        await end_turn(number)
        states.append(_state(worker, stats.get(url), fleet.models.mismatched))
    answer = {"policy": resources.router.policy, "workers": states}
    return LongResponse(_ENCODER.encode(answer), resources.limits)


def _state(worker: Worker, stats: WorkerStats | None, mismatched: frozenset[str]) -> dict[str, Any]:
    """Return a worker's state; without KV events, its counts are 0."""
    return WorkerState(
        url=worker.url,
        engine=worker.engine and worker.engine.name,
        lacking=dict(worker.described.lacking),
        release=worker.release or None,
        names=worker.names.verdict,
        plugin=worker.plugin,
        healthy=worker.is_healthy,
        models=sorted(worker.models),
        mismatched=worker.url in mismatched,
        requests=worker.requests,
        load=worker.load,
        last_how=worker.last_how,
        connected=stats is not None and stats.is_connected,
        blocks=stats.blocks if stats else 0,
        block_size=stats.block_size if stats else 0,
        expected_blocks=len(worker.expected),
        events=stats.events if stats else 0,
        gaps=stats.gaps if stats else 0,
        replays=stats.replays if stats else 0,
        drops=stats.drops if stats else 0,
        lag_s=stats.lag_s if stats else 0.0,
    ).model_dump()


def _join(decision: Decision, body: bytes) -> bytes:
    plan = decision.prepared.plan
    return _ENCODER.encode(
        {
            "request": Raw(body),
            "plan": plan and plan._asdict(),
            "workers": [_routed(ranked) for ranked in decision.workers],
        }
    )


def _routed(ranked: Ranked) -> dict[str, Any]:
    members = ranked._asdict()
    if not ranked.expected_tokens:
        del members["expected_tokens"]
    return members
