"""The ASGI application: its routes, its resources and its middleware."""

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

import mmhash
from mmhash_service.endpoints import annotate, blocks, docs, pad, page, plan, probes
from mmhash_service.endpoints import hash as hash_route
from mmhash_service.endpoints.openapi import describe_bodies
from mmhash_service.endpoints.schemas.server import ProblemAnswer
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.access_log import AccessLogMiddleware
from mmhash_service.http.api_keys import ApiKeyMiddleware
from mmhash_service.http.duplicate_headers import DuplicateHeaderMiddleware
from mmhash_service.http.metrics_port import MetricsPortMiddleware
from mmhash_service.http.problem_responses import MEDIA_TYPE, add_problem_handlers
from mmhash_service.http.tracing import TracingMiddleware
from mmhash_service.models import Models
from mmhash_service.resources import Resources
from mmhash_service.settings import Settings
from mmhash_service.telemetry import tracing

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
    settings = settings or Settings()
    if not gateway.has_workers:
        return build_app(Resources(settings, models), _ROUTERS)
    # The KV index and zmq: 0.09 s of CPU.
    from mmhash_service.endpoints import fleet  # noqa: PLC0415
    from mmhash_service.gateway.resources import GatewayResources  # noqa: PLC0415

    return build_app(GatewayResources(settings, gateway, models), (*_ROUTERS, fleet.router))


def build_app(
    resources: Resources,
    routers: Iterable[APIRouter],
    known_paths: frozenset[str] = frozenset(),
    *,
    has_docs: bool = True,
    pages: Collection[str] = page.FILES.keys(),
) -> FastAPI:
    """Create an application with these routes; the access log names them and `known_paths`.

    It names the `pages` too, whose paths need no API key.
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
    app.state.resources = resources
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
    _add_middleware(app, resources.settings, pages, paths)
    return app


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
    resources = Resources.of_app(app)
    await resources.open()
    yield
    await resources.close()
