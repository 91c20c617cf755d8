"""`GET /health` and `GET /version`: that the server answers, and what it is."""

import platform

from fastapi import APIRouter

import mmhash
from mmhash.framing import SPEC_VERSION
from mmhash_service.schemas import Health, Version

router = APIRouter()


@router.get("/health")
async def health() -> Health:
    """That the process answers."""
    return Health(status="ok")


@router.get("/version")
async def version() -> Version:
    """What is running."""
    return Version(mmhash=mmhash.__version__, spec=SPEC_VERSION, python=platform.python_version())
