"""The application of `mmhash picker`: gRPC for Envoy, and HTTP for probes and metrics."""

from fastapi import FastAPI

from mmhash_service.endpoints import page
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.app import build_endpoints, list_middleware, paths_of
from mmhash_service.http.gateway import own_routers
from mmhash_service.models import Models
from mmhash_service.picker.server import PickerResources
from mmhash_service.settings import Settings


def create_picker(
    settings: Settings, gateway: GatewaySettings, models: Models | None = None
) -> FastAPI:
    """Create the application. Read the models unless they are given.

    The setting `port` is the gRPC port. The gateway's own paths are on the metrics port.
    """
    resources = PickerResources(settings, gateway, models)
    routers = own_routers()
    app = build_endpoints(resources, routers)
    paths = paths_of(route for router in routers for route in router.routes)
    without_port = settings.model_copy(update={"metrics_port": None})
    open_paths = {"/metrics", *page.GATEWAY_FILES}
    app.user_middleware = list_middleware(without_port, paths, open_paths)
    return app
