"""The resources of a gateway: those of the service, and its workers."""

from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.router import Router
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.models import Models
from mmhash_service.resources import Resources
from mmhash_service.settings import Settings


class GatewayResources(Resources):
    """The workers, and what chooses one of them for a request."""

    def __init__(
        self,
        settings: Settings,
        gateway: GatewaySettings,
        models: Models | None = None,
        *,
        needs_workers: bool = False,
    ) -> None:
        super().__init__(settings, models)
        self.fleet = Fleet(gateway, settings.engine_fallback)
        self.router = Router(self.fleet, gateway)
        self._needs_workers = needs_workers

    @property
    def lacks_workers(self) -> bool:
        """True if requests need a worker, and none is healthy."""
        return self._needs_workers and not self.fleet.has_healthy

    async def open(self) -> None:
        """Begin to watch the workers too."""
        await super().open()
        await self.fleet.open()

    async def close(self) -> None:
        """End the connections to the workers first."""
        await self.fleet.close()
        await super().close()
