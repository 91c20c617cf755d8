"""The gateway's ASGI application: a few paths of its own, and the proxy behind all others."""

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from mmhash_service.endpoints import fleet, page, probes
from mmhash_service.gateway.proxy import KNOWN_PATHS, Proxy
from mmhash_service.gateway.resources import GatewayResources
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.app import build_app
from mmhash_service.models import Models
from mmhash_service.settings import Settings

# All others belong to the workers: /v1/models, /version, /docs, …
OWN_PATHS = frozenset({"/live", "/ready", "/health", "/metrics", "/route", "/workers"})


def create_gateway(
    settings: Settings, gateway: GatewaySettings, models: Models | None = None
) -> FastAPI:
    """Create the application of `mmhash gateway`; the models are read if they are not given."""
    # FastAPI's pages would hide those of the workers.
    resources = GatewayResources(settings, gateway, models, needs_workers=True)
    app = build_app(
        resources,
        (_own(probes.router), fleet.router, page.gateway_router),
        KNOWN_PATHS,
        has_docs=False,
        pages=page.GATEWAY_FILES.keys(),
    )
    app.router.default = Proxy(resources, gateway)
    return app


def _own(router: APIRouter) -> APIRouter:
    own = APIRouter()
    own.routes.extend(
        route for route in router.routes if isinstance(route, APIRoute) and route.path in OWN_PATHS
    )
    return own
