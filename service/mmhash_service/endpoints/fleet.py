"""`POST /route` and `GET /workers`: which worker gets a request, and the state of each worker."""

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from msgspec import Raw
from msgspec.json import Encoder
from pydantic import BaseModel, ConfigDict, Field

from mmhash.kvindex import WorkerStats
from mmhash_service.bodies.json_body import read_json
from mmhash_service.bodies.parsing import parse_query
from mmhash_service.bodies.types import RequestPath
from mmhash_service.endpoints.long_response import LongResponse
from mmhash_service.endpoints.openapi import json_body, query_parameters
from mmhash_service.gateway.request import read_request
from mmhash_service.gateway.resources import GatewayResources
from mmhash_service.gateway.router import Decision, Routing
from mmhash_service.gateway.worker import Worker
from mmhash_service.limits.threads import end_turn

router = APIRouter()

JSON = "application/json"

_ENCODER = Encoder()

# How fast a request is copied into the response, and checked if it has no plan.
_BYTES_PER_US = 2000


class RouteQuery(BaseModel):
    """The query of `POST /route`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    path: RequestPath = None


class PlanSize(BaseModel):
    """The size of a prompt as the engine will see it."""

    tokens: int
    blocks: int


class RoutedWorker(BaseModel):
    """A worker as the policy sees it for one request."""

    url: str
    matched_tokens: int = Field(
        description="How many tokens at the start of the prompt the worker has cached."
    )
    expected_tokens: int | None = Field(
        default=None,
        description="How many more tokens the worker probably has: running requests compute them, "
        "or its events cannot name them. Absent if none.",
    )
    load: float = Field(description="How many tokens the worker must compute for other requests.")
    score: float


class RouteAnswer(BaseModel):
    """The response of `POST /route`."""

    request: dict[str, Any] = Field(description="The request as the first worker gets it.")
    plan: PlanSize | None = Field(description="Null if the prompt cannot be planned.")
    workers: list[RoutedWorker] = Field(
        description="The workers that may get the request, best first."
    )


class WorkerState(BaseModel):
    """A worker as the gateway knows it."""

    url: str
    engine: str | None = Field(description="The engine and release that requests are planned for.")
    lacking: dict[str, str] = Field(
        description="What the gateway does not know about the worker: each missing option of "
        "`--worker`, and why the server does not report its value."
    )
    release: str | None = Field(description="The engine and release that the server reports.")
    names: Literal["unknown", "right", "wrong"] = Field(
        description="Whether the KV events name blocks as plans for this worker do. If `wrong`, "
        "every lookup misses, and the log says why."
    )
    plugin: list[str] | None = Field(
        description="The features of mmhash's plugin in this SGLang server: `keys`, `guard`, "
        "`features`, and `tenants` if it has the tenants' secrets. Null without the plugin."
    )
    healthy: bool
    models: list[str] = Field(description="The models listed at /v1/models; empty if unknown.")
    requests: int = Field(description="How many requests of this process the worker is answering.")
    load: float = Field(description="An estimate of how many tokens the worker must compute.")
    last_how: str | None = Field(
        description="How the worker's last prompt from this process was routed: `planned`, or why "
        "it had no plan."
    )
    connected: bool = Field(description="True if KV events are connected.")
    blocks: int = Field(description="How many blocks are cached, according to the KV events.")
    block_size: int = Field(
        description="The tokens in a block, according to the KV events. 0 before the first event."
    )
    expected_blocks: int = Field(
        description="How many blocks the worker is computing, until a second after their requests "
        "end. `blocks` does not include them."
    )
    events: int = Field(description="How many KV events have arrived.")
    gaps: int = Field(description="How many gaps there were between the numbers of event batches.")
    replays: int = Field(description="How many replays the gateway requested.")
    drops: int = Field(
        description="How often the gateway forgot all blocks because events were lost."
    )
    lag_s: float = Field(description="How many seconds late the last event arrived.")


class WorkersAnswer(BaseModel):
    """The response of `GET /workers`."""

    policy: str
    workers: list[WorkerState]


_OPENAPI = {"parameters": query_parameters(RouteQuery), **json_body(None)}


@router.post("/route", openapi_extra=_OPENAPI, response_model=RouteAnswer)
async def route(request: Request) -> Response:
    """Return a request as its worker would get it, and the workers for it, best first."""
    query = parse_query(request.query_params, RouteQuery)
    resources = GatewayResources.of(request)
    with resources.limits.admit() as admission:
        text = await read_json(request, resources.settings, admission)
        routed = await read_request(text, JSON, query.path, resources.work, is_prompt=True)
        _ = routed.document  # refuses a body that is not JSON
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
        states.append(_state(worker, stats.get(url)))
    answer = {"policy": resources.gateway.policy, "workers": states}
    return LongResponse(_ENCODER.encode(answer), resources.limits)


def _state(worker: Worker, stats: WorkerStats | None) -> dict[str, Any]:
    """Return a worker's state. Without KV events, all counts of events are 0."""
    return WorkerState(
        url=worker.url,
        engine=worker.engine and worker.engine.name,
        lacking=dict(worker.described.lacking),
        release=worker.release or None,
        names=worker.names.verdict,
        plugin=worker.plugin,
        healthy=worker.is_healthy,
        models=sorted(worker.models),
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
    workers = [
        RoutedWorker(
            url=one.url,
            matched_tokens=one.matched_tokens,
            expected_tokens=one.expected_tokens or None,
            load=one.load,
            score=one.score,
        ).model_dump(exclude_none=True)
        for one in decision.workers
    ]
    plan = decision.prepared.plan
    return _ENCODER.encode({"request": Raw(body), "plan": plan, "workers": workers})
