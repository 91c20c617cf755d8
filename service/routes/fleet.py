"""`POST /route` and `GET /workers`: the workers of a gateway, and their order for a request."""

from fastapi import APIRouter, Request, Response
from msgspec import Raw
from msgspec.json import Encoder

from mmhash_service.api.schemas import RouteAnswer, WorkersAnswer, WorkerState
from mmhash_service.bodies.json_body import read_json
from mmhash_service.gateway.media import without_callers_hashes
from mmhash_service.gateway.router import Decision

router = APIRouter()

JSON = "application/json"

_DOCUMENTATION = {
    "requestBody": {"required": True, "content": {JSON: {"schema": {"type": "object"}}}}
}
_ENCODER = Encoder()


@router.post("/route", openapi_extra=_DOCUMENTATION, response_model=RouteAnswer)
async def route(request: Request) -> Response:
    """Return the request as its best worker would get it, and the workers, the best one first."""
    state = request.app.state
    with state.limits.admit() as admission:
        text = await read_json(request, state.settings, admission)
        text = await without_callers_hashes(text, JSON, state.work)
        decision = await state.router.decide(request, text, admission)
        body = decision.body_of_best(state.fleet, text)
        return Response(await state.work.run(_join, decision, body), media_type=JSON)


@router.get("/workers")
async def workers(request: Request) -> WorkersAnswer:
    """Return the state of each worker."""
    state = request.app.state
    return WorkersAnswer(
        policy=state.router.policy,
        workers=[
            WorkerState(
                url=worker.url,
                engine=worker.spec.engine,
                healthy=worker.is_healthy,
                requests=worker.requests,
                load=worker.load,
            )
            for worker in state.fleet.workers.values()
        ],
    )


def _join(decision: Decision, body: bytes) -> bytes:
    return _ENCODER.encode(
        {
            "request": Raw(body),
            "plan": decision.plan and decision.plan._asdict(),
            "workers": [ranked._asdict() for ranked in decision.workers],
        }
    )
