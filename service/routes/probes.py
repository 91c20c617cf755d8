"""Whether the server lives, is ready and answers; what it is and can do; its metrics."""

import platform

from fastapi import APIRouter, Request, Response

import mmhash
from mmhash.digest import ALGORITHMS
from mmhash.engines.registry import known_in_requests
from mmhash.framing import SPEC_VERSION
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import Health, Info, Version
from mmhash_service.runtime import self_test as backends
from mmhash_service.runtime.metrics import exposition

router = APIRouter()

_LIMITS = (
    "max_body_bytes",
    "max_json_bytes",
    "max_items",
    "max_pixels",
    "max_held_bytes",
    "max_calls",
    "work_timeout_s",
    "stall_timeout_s",
)


@router.get("/live")
async def live() -> Health:
    """That the process runs: else start it anew."""
    return Health(status="ok")


@router.get("/ready")
async def ready(request: Request) -> Health:
    """That calls may come: every backend gives the known digest, and the server is not stopping."""
    state = request.app.state
    if state.limits.draining:
        raise Problem("draining")
    if not await state.decoders.is_ready():
        raise Problem("not-ready")
    if not await state.work.run(backends.self_test, state.settings):
        raise Problem("not-ready")
    return Health(status="ok")


@router.get("/health")
async def health() -> Health:
    """That the process answers."""
    return Health(status="ok")


@router.get("/version")
async def version() -> Version:
    """What is running."""
    return Version(mmhash=mmhash.__version__, spec=SPEC_VERSION, python=platform.python_version())


@router.get("/info")
async def info(request: Request) -> Info:
    """What the server can do, and how far it goes."""
    settings = request.app.state.settings
    return Info(
        algorithms=list(ALGORITHMS),
        spec=SPEC_VERSION,
        limits={name: getattr(settings, name) for name in _LIMITS},
        devices=await request.app.state.work.run(backends.devices, settings),
        engines=known_in_requests(),
        in_place=[name for name in ("shm", "cuda_ipc") if getattr(settings, name)],
        memo=request.app.state.memo.kind,
    )


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics() -> Response:
    """What Prometheus reads."""
    text, content_type = exposition()
    return Response(text, media_type=content_type)
