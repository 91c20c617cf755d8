"""The resources of a gateway: those of the service, and its workers."""

import logging

from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.fleet_metrics import FleetCollector
from mmhash_service.gateway.router import Router
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.models import Models
from mmhash_service.resources import Resources
from mmhash_service.settings import Settings
from mmhash_service.telemetry import metrics

logger = logging.getLogger(__name__)


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
        self._collector = FleetCollector(self.fleet)
        self._needs_workers = needs_workers

    @property
    def lacks_workers(self) -> bool:
        """True if requests need a worker, and none is healthy."""
        return self._needs_workers and not self.fleet.has_healthy

    async def open(self) -> None:
        """Begin to watch the workers too."""
        await super().open()
        await self.fleet.open()
        metrics.READ_AT_SCRAPE.register(self._collector)
        if self._needs_workers:
            self._log_start()

    def _log_start(self) -> None:
        workers = self.fleet.workers.values()
        engines = {
            f"{one.engine.name} with blocks of {one.engine.tokens_per_block}"
            for one in workers
            if one.engine
        }
        logger.info(
            "routes by %s to %d workers, %d healthy (%s); models: %s; the page /fleet shows them",
            self.router.policy, len(workers), sum(one.is_healthy for one in workers),
            ", ".join(sorted(engines)) or "no known engine", ", ".join(self.models.names) or "none",
        )  # fmt: skip

    async def close(self) -> None:
        """End the connections to the workers first."""
        metrics.READ_AT_SCRAPE.unregister(self._collector)
        await self.fleet.close()
        await super().close()
