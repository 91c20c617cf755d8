"""Probes, versions, capabilities and metrics of the server."""

import platform
from typing import Literal

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

import mmhash
from mmhash.digest import ALGORITHMS
from mmhash.engines.registry import known
from mmhash.framing import SPEC_VERSION
from mmhash_service.endpoints.self_test import devices, self_test
from mmhash_service.items.context import on_unix_socket
from mmhash_service.problems.problem import Problem
from mmhash_service.resources import Resources
from mmhash_service.settings import Settings
from mmhash_service.telemetry.metrics import exposition

router = APIRouter()

_LIMITS = (
    "max_body_bytes",
    "max_json_bytes",
    "max_pixels",
    "max_held_bytes",
    "timeout_s",
)


class Health(BaseModel):
    """The answer of a probe."""

    status: Literal["ok"]


class Version(BaseModel):
    """The versions of mmhash, the spec of its keys, and Python."""

    mmhash: str
    spec: int
    python: str


class Info(BaseModel):
    """The capabilities and limits of the service."""

    algorithms: list[str]
    spec: int
    limits: dict[str, int | float]
    devices: list[str]
    engines: dict[str, list[str]]
    in_place: list[str]
    models: list[str] = Field(description="The models that can be planned.")
    memo: str = Field(description="The scheme of the memo's URL, or memory.")


@router.head("/live", include_in_schema=False)
@router.get("/live")
async def live() -> Health:
    """Answer as long as the process runs. If it does not answer, restart it."""
    return Health(status="ok")


@router.head("/ready", include_in_schema=False)
@router.get("/ready")
async def ready(request: Request) -> Health:
    """Answer 200 if the server accepts requests and every device passes its self-test."""
    resources = Resources.of(request)
    if resources.limits.draining:
        raise Problem("draining")
    if resources.lacks_workers:
        raise Problem("no-workers")
    if not await resources.decoders.is_ready():
        raise Problem("not-ready")
    if not await resources.work.run(self_test, resources.settings):
        raise Problem("not-ready")
    return Health(status="ok")


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health() -> Health:
    """Answer as long as the process runs."""
    return Health(status="ok")


@router.get("/version")
async def version() -> Version:
    """Return the versions of mmhash, the spec of its keys, and Python."""
    return Version(mmhash=mmhash.__version__, spec=SPEC_VERSION, python=platform.python_version())


@router.get("/info")
async def info(request: Request) -> Info:
    """Return the capabilities and limits of the server."""
    settings = Resources.of(request).settings
    return Info(
        algorithms=list(ALGORITHMS),
        spec=SPEC_VERSION,
        limits={name: getattr(settings, name) for name in _LIMITS},
        devices=await Resources.of(request).work.run(devices, settings),
        engines=known(),
        in_place=_in_place(request, settings),
        models=Resources.of(request).models.names,
        memo=Resources.of(request).memo.kind,
    )


def _in_place(request: Request, settings: Settings) -> list[str]:
    """Return which handles this connection may send."""
    if not on_unix_socket(request):
        return []
    return ["shm", "cuda_ipc"] if settings.cuda_ipc else ["shm"]


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics() -> Response:
    """Return the metrics in the Prometheus text format."""
    # Run this in a thread, because it reads /proc and a file of each process.
    text, content_type = await to_thread.run_sync(exposition)
    return Response(text, media_type=content_type)
