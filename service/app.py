"""The ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

import mmhash
from mmhash_service.api.openapi import describe_bodies
from mmhash_service.api.problem_handlers import MEDIA_TYPE, add_problem_handlers
from mmhash_service.api.schemas import ProblemAnswer
from mmhash_service.claims.desk import ClaimDesk
from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.fetch.fetcher import Fetcher
from mmhash_service.items.mapped_hasher import MappedHasher
from mmhash_service.memo.memo import Memo
from mmhash_service.middleware.access_log import AccessLogMiddleware
from mmhash_service.middleware.api_keys import ApiKeyMiddleware
from mmhash_service.middleware.duplicate_headers import DuplicateHeaderMiddleware
from mmhash_service.plan.models import Models
from mmhash_service.routes import annotate, blocks, claim, pad, page, plan, probes
from mmhash_service.routes import hash as hash_route
from mmhash_service.runtime.capacity import Limits
from mmhash_service.runtime.worker_pool import WorkerPool
from mmhash_service.settings import Settings

_PROBLEM = {
    "description": "A problem (RFC 9457).",
    "content": {MEDIA_TYPE: {"schema": ProblemAnswer.model_json_schema()}},
}


def create_app(settings: Settings | None = None) -> FastAPI:
    """Create the application; `settings` default to those of the environment."""
    app = FastAPI(
        title="mmhash",
        version=mmhash.__version__,
        redirect_slashes=False,
        redoc_url=None,
        responses={"default": _PROBLEM},
        lifespan=_lifespan,
    )
    app.state.settings = settings = settings or Settings()
    app.state.limits = Limits(settings)
    app.state.models = Models(settings.models)
    app.state.work = WorkerPool(settings.work_timeout_s)
    app.state.decoders = DecoderPool(settings)
    app.state.memo = Memo(settings)
    app.state.claims = ClaimDesk(app.state.memo.claims, is_alone=settings.workers == 1)
    app.state.fetcher = Fetcher(settings)
    app.state.mapped = MappedHasher(settings.work_timeout_s)
    for route in (hash_route, annotate, pad, blocks, plan, claim, probes, page):
        app.include_router(route.router)
    add_problem_handlers(app)
    describe_bodies(app)
    # The last one added is the outermost: requests without a key are logged too.
    if settings.api_key_digests:
        app.add_middleware(ApiKeyMiddleware, digests=settings.api_key_digests)
    app.add_middleware(DuplicateHeaderMiddleware)
    app.add_middleware(AccessLogMiddleware, paths=frozenset(app.openapi()["paths"]))
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the application's resources, and close them after the last request."""
    app.state.decoders.open()
    await app.state.memo.open()
    yield
    await app.state.decoders.close()
    await app.state.fetcher.close()
    app.state.claims.close()
    await app.state.memo.close()
    app.state.mapped.close()
