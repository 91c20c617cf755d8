"""The service's ASGI application: its endpoints, its resources and its middleware."""

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route

import mmhash
from mmhash_service.endpoints import annotate, blocks, docs, pad, page, plan, probes, render
from mmhash_service.endpoints import hash as hash_route
from mmhash_service.endpoints.openapi import ProblemAnswer, describe_bodies
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.middleware import (
    ApiKeyMiddleware,
    MetricsPortMiddleware,
    RequestMiddleware,
)
from mmhash_service.http.problem_responses import MEDIA_TYPE, add_problem_handlers
from mmhash_service.models import Models
from mmhash_service.resources import Resources
from mmhash_service.settings import Settings
from mmhash_service.telemetry import tracing

_PROBLEM = {
    "description": "A problem (RFC 9457).",
    "content": {MEDIA_TYPE: {"schema": ProblemAnswer.model_json_schema()}},
}


_ROUTERS = tuple(
    route.router for route in (hash_route, annotate, pad, blocks, plan, render, probes, page)
)


def create_app(
    settings: Settings | None = None,
    gateway: GatewaySettings | None = None,
    models: Models | None = None,
) -> FastAPI:
    """Create the service's application. By default, settings come from the environment.

    The application answers `/route` and `/workers` if the gateway's settings have workers. It loads
    the models unless they are given.
    """
    gateway = gateway or GatewaySettings()
    settings = settings or Settings()
    if gateway.has_workers:
        # Only the gateway needs these modules, which import the KV index and zmq slowly.
        from mmhash_service.endpoints import fleet  # noqa: PLC0415
        from mmhash_service.gateway.resources import GatewayResources  # noqa: PLC0415

        resources: Resources = GatewayResources(settings, gateway, models)
        routers = (*_ROUTERS, fleet.router)
    else:
        resources = Resources(settings, models)
        routers = _ROUTERS
    app = build_endpoints(resources, routers)
    description = docs.routes_of(app)
    app.router.routes.extend(description)
    paths = paths_of([*description, *(route for router in routers for route in router.routes)])
    app.user_middleware = list_middleware(settings, paths, page.FILES.keys())
    return app


def build_endpoints(resources: Resources, routers: Iterable[APIRouter]) -> FastAPI:
    """Create an application with these routes, without middleware."""
    app = FastAPI(
        title="mmhash",
        version=mmhash.__version__,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        responses={"default": _PROBLEM},
        lifespan=_lifespan,
        # FastAPI's spans would hold the query. Our middleware covers refused requests too.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.resources = resources
    for router in routers:
        app.include_router(router)
    add_problem_handlers(app)
    describe_bodies(app)
    return app


def paths_of(routes: Iterable[BaseRoute]) -> frozenset[str]:
    """Return the paths of the routes."""
    return frozenset(route.path for route in routes if isinstance(route, Route))


def list_middleware(
    settings: Settings, paths: frozenset[str], pages: Collection[str]
) -> list[Middleware]:
    """Return the middleware, outermost first. The access log comes before all refusals.

    The access log and the metrics name the `paths`, but not each file of a page. The `pages` need
    no API key.
    """
    paths = frozenset(path for path in paths if not path.startswith("/page/"))
    tracing.enable()
    middleware = [Middleware(RequestMiddleware, paths=paths)]
    if settings.metrics_port is not None:
        middleware.append(Middleware(MetricsPortMiddleware, port=settings.metrics_port))
    if settings.api_key_digests:
        middleware.append(Middleware(ApiKeyMiddleware, pages=pages))
    return middleware


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the application's resources, and close them after the last request."""
    resources = Resources.of_app(app)
    await resources.open()
    yield
    await resources.close()
