"""The gateway's ASGI application: a few paths of its own, and the proxy for all others."""

from collections.abc import Awaitable, Iterable

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mmhash_service.endpoints import fleet, page, probes
from mmhash_service.gateway.proxy import KNOWN_PATHS, Proxy
from mmhash_service.gateway.resources import GatewayResources
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.app import build_endpoints, list_middleware, paths_of
from mmhash_service.http.middleware import POLLED
from mmhash_service.models import Models
from mmhash_service.settings import Settings


class Gateway:
    """Sends its own paths to the endpoints, and all others to the proxy. Both share middleware."""

    def __init__(
        self,
        endpoints: FastAPI,
        own_paths: frozenset[str],
        proxy: ASGIApp,
        middleware: Iterable[Middleware],
    ) -> None:
        """Create the application. The first middleware is the outermost one."""
        self.state = endpoints.state
        self._endpoints = endpoints
        self._own_paths = own_paths
        self._proxy = proxy
        self._app: ASGIApp = self._dispatch
        for each, args, options in reversed(list(middleware)):
            self._app = each(self._app, *args, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the lifespan."""
        scope["app"] = self  # endpoints find its resources through this
        await self._app(scope, receive, send)

    def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if _is_browser(scope):
            return RedirectResponse("fleet")(scope, receive, send)
        is_own = scope["type"] != "http" or scope["path"] in self._own_paths
        return (self._endpoints if is_own else self._proxy)(scope, receive, send)


def _is_browser(scope: Scope) -> bool:
    """Return True if a browser asks for `/`, where workers have no page."""
    if scope["type"] != "http" or scope["path"] != "/" or scope["method"] != "GET":
        return False
    return "text/html" in Headers(scope=scope).get("accept", "")


def own_routers() -> tuple[APIRouter, ...]:
    """Return the routes of the gateway's own paths. Others, such as /version, go to the workers."""
    own_probes = APIRouter()
    own_probes.routes.extend(
        route
        for route in probes.router.routes
        if isinstance(route, APIRoute) and route.path in POLLED
    )
    return own_probes, fleet.router, page.gateway_router


def create_gateway(
    settings: Settings, gateway: GatewaySettings, models: Models | None = None
) -> Gateway:
    """Create the application of `mmhash gateway`. Load the models unless they are given."""
    resources = GatewayResources(settings, gateway, models, needs_workers=True)
    routers = own_routers()
    own_paths = paths_of(route for router in routers for route in router.routes)
    middleware = list_middleware(settings, own_paths | KNOWN_PATHS, page.GATEWAY_FILES.keys())
    endpoints = build_endpoints(resources, routers)
    return Gateway(endpoints, own_paths, Proxy(resources), middleware)
