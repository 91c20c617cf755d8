"""Metrics of each worker that have the same value in every process of a gateway."""

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from mmhash_service.gateway.fleet import Fleet

PREFIX = "mmhash_gateway_worker_"
GAUGES = {
    "healthy": "1 if the worker is healthy, otherwise 0.",
    "events_connected": "1 if the worker's KV events are connected.",
    "events_lag_seconds": "How late the worker's KV events arrive.",
    "blocks": "Blocks that the worker's KV events list as stored.",
}
"""Each gauge, without its prefix, and its meaning."""


class FleetCollector(Collector):
    """The state of the workers at the time of a scrape, without workers that have left."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterable[Metric]:
        """Return a gauge of each kind for each worker."""
        families = {
            name: GaugeMetricFamily(PREFIX + name, text, labels=["worker"])
            for name, text in GAUGES.items()
        }
        stats = self._fleet.index.stats().workers
        for url, worker in list(self._fleet.workers.items()):
            values: dict[str, float] = {"healthy": worker.is_healthy}
            if of_events := stats.get(url):  # a worker without KV events has none
                values["events_connected"] = of_events.is_connected
                values["events_lag_seconds"] = of_events.lag_s
                values["blocks"] = of_events.blocks
            for name, value in values.items():
                families[name].add_metric([url], float(value))
        return families.values()

    def describe(self) -> Iterable[Metric]:
        """Return nothing. Otherwise the registry would collect before the fleet is open."""
        return ()
