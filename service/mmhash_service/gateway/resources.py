"""The resources of a gateway: the service's resources, and the workers."""

import logging

from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.fleet_metrics import FleetCollector
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.models import Models
from mmhash_service.resources import Resources
from mmhash_service.settings import Settings
from mmhash_service.telemetry import metrics

logger = logging.getLogger(__name__)


class GatewayResources(Resources):
    """The service's resources, and the workers."""

    def __init__(
        self,
        settings: Settings,
        gateway: GatewaySettings,
        models: Models | None = None,
        *,
        needs_workers: bool = False,
    ) -> None:
        super().__init__(settings, models)
        self.gateway = gateway
        self.fleet = Fleet(gateway)
        self._collector = FleetCollector(self.fleet)
        self._needs_workers = needs_workers

    @property
    def lacks_workers(self) -> bool:
        """True if requests need a worker and none is healthy."""
        return self._needs_workers and not self.fleet.has_healthy

    async def open(self) -> None:
        """Open the service's resources, and start to watch the workers."""
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
            "routing by %s to %d workers, %d of them healthy (%s); models: %s; see the page /fleet",
            self.gateway.policy, len(workers), sum(one.is_healthy for one in workers),
            ", ".join(sorted(engines)) or "unknown engine", ", ".join(self.models.names) or "none",
        )  # fmt: skip

    async def close(self) -> None:
        """Close the connections to the workers, then the service's resources."""
        metrics.READ_AT_SCRAPE.unregister(self._collector)
        await self.fleet.close()
        await super().close()
