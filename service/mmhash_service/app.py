"""The ASGI application: its routes, its resources and its middleware."""

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

import mmhash
from mmhash_service.api.openapi import describe_bodies
from mmhash_service.api.problem_handlers import MEDIA_TYPE, add_problem_handlers
from mmhash_service.api.schemas.server import ProblemAnswer
from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.fetch.fetcher import Fetcher
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.memo.memo import Memo
from mmhash_service.middleware.access_log import AccessLogMiddleware
from mmhash_service.middleware.api_keys import ApiKeyMiddleware
from mmhash_service.middleware.duplicate_headers import DuplicateHeaderMiddleware
from mmhash_service.middleware.metrics_port import MetricsPortMiddleware
from mmhash_service.middleware.tracing import TracingMiddleware
from mmhash_service.plan.models import Models
from mmhash_service.routes import annotate, blocks, docs, pad, page, plan, probes
from mmhash_service.routes import hash as hash_route
from mmhash_service.runtime import tracing
from mmhash_service.runtime.capacity import Limits
from mmhash_service.runtime.worker_pool import PromptPool, WorkerPool
from mmhash_service.settings import Settings

_PROBLEM = {
    "description": "A problem (RFC 9457).",
    "content": {MEDIA_TYPE: {"schema": ProblemAnswer.model_json_schema()}},
}


_ROUTERS = tuple(route.router for route in (hash_route, annotate, pad, blocks, plan, probes, page))


def create_app(
    settings: Settings | None = None,
    gateway: GatewaySettings | None = None,
    models: Models | None = None,
) -> FastAPI:
    """Create the service's application; settings default to those of the environment.

    It answers `/route` and `/workers` if the gateway's settings have workers. The models are read
    if they are not given.
    """
    gateway = gateway or GatewaySettings()
    if not gateway.has_workers:
        return build_app(settings or Settings(), _ROUTERS, models=models)
    # The KV index and zmq: 0.09 s of CPU.
    from mmhash_service.gateway.router import add_fleet  # noqa: PLC0415
    from mmhash_service.routes import fleet  # noqa: PLC0415

    app = build_app(settings or Settings(), (*_ROUTERS, fleet.router), models=models)
    add_fleet(app, gateway)
    return app


def build_app(
    settings: Settings,
    routers: Iterable[APIRouter],
    known_paths: frozenset[str] = frozenset(),
    *,
    has_docs: bool = True,
    pages: Collection[str] = page.FILES.keys(),
    models: Models | None = None,
) -> FastAPI:
    """Create an application with these routes; the access log names them and `known_paths`.

    It names the `pages` too, whose paths need no API key. Models that are None are read.
    """
    app = FastAPI(
        title="mmhash",
        version=mmhash.__version__,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        responses={"default": _PROBLEM},
        lifespan=_lifespan,
        # Its spans would hold the query; ours cover refused requests too.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    _add_resources(app, settings, models or Models(settings.models))
    for router in routers:
        app.include_router(router)
    add_problem_handlers(app)
    describe_bodies(app)
    description = docs.routes_of(app) if has_docs else []
    app.router.routes.extend(description)
    paths = known_paths.union(
        pages,
        [route.path for route in description],
        [
            route.path
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and route.include_in_schema
        ],
    )
    _add_middleware(app, settings, pages, paths)
    return app


def _add_resources(app: FastAPI, settings: Settings, models: Models) -> None:
    """Create the resources that requests share; `_lifespan` opens and closes them."""
    app.state.settings = settings
    app.state.limits = Limits(settings)
    app.state.models = models
    app.state.work = WorkerPool(settings.work_timeout_s)
    app.state.prompts = PromptPool(settings.work_timeout_s)
    app.state.decoders = DecoderPool(settings)
    app.state.memo = Memo(settings)
    app.state.fetcher = Fetcher(settings)
    app.state.fleet = None  # see add_fleet
    app.state.needs_workers = False


def _add_middleware(
    app: FastAPI, settings: Settings, pages: Collection[str], paths: frozenset[str]
) -> None:
    """Add the middleware; the last one added is the outermost, so refused requests are logged."""
    if settings.api_key_digests:
        app.add_middleware(ApiKeyMiddleware, pages=pages)
    if settings.metrics_port is not None:
        app.add_middleware(MetricsPortMiddleware, port=settings.metrics_port)
    app.add_middleware(DuplicateHeaderMiddleware)
    app.add_middleware(AccessLogMiddleware, paths=paths)
    if tracing.enable():
        app.add_middleware(TracingMiddleware, paths=paths)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the application's resources, and close them after the last request."""
    app.state.decoders.open()
    await app.state.memo.open()
    if app.state.fleet is not None:
        await app.state.fleet.open()
    yield
    if app.state.fleet is not None:
        await app.state.fleet.close()
    await app.state.decoders.close()
    await app.state.fetcher.close()
    await app.state.memo.close()
