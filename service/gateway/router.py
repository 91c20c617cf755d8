"""The decision of a request's worker: hashes, plan, match, rank."""

import logging
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from fastapi import Request

from mmhash.errors import MMHashError
from mmhash_service.api.problems import Problem
from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.media import may_have_media, with_own_hashes
from mmhash_service.gateway.policy import Candidate, Ranked, rank
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.runtime import metrics
from mmhash_service.runtime.capacity import Admission

logger = logging.getLogger(__name__)

# The load of a request that has no plan, in tokens: a median prompt with an image.
UNPLANNED_TOKENS = 600


class PlanSize(NamedTuple):
    """The size of a planned prompt."""

    tokens: int
    blocks: int


class _Prepared(NamedTuple):
    """A request as the workers of one engine get it."""

    body: bytes
    first_key: bytes = b""
    plan: PlanSize | None = None
    matched: Mapping[str, int] = MappingProxyType({})
    how: str = "no engine"


class Decision(NamedTuple):
    """The workers to try, the best one first, and the request that each of them gets."""

    workers: list[Ranked]
    prepared: dict[str | None, _Prepared]
    plan: PlanSize | None

    def uncached_tokens(self, ranked: Ranked) -> int:
        """Return the tokens that a worker has to compute for the request, by estimate."""
        if self.plan is None:
            return UNPLANNED_TOKENS
        return max(0, self.plan.tokens - ranked.matched_tokens)

    def body_of_best(self, fleet: Fleet, text: bytes) -> bytes:
        """Return the request for the best worker; without any worker, the text."""
        if not self.workers:
            return text
        return self.prepared[fleet.workers[self.workers[0].url].spec.engine].body


class Router:
    """Decides which workers get a request."""

    def __init__(self, fleet: Fleet, settings: GatewaySettings) -> None:
        self.fleet = fleet
        self._settings = settings
        self.policy = settings.policy

    def unplanned(self, body: bytes) -> Decision:
        """Return a decision by load, for a request that is forwarded as it is."""
        engines = {worker.spec.engine for worker in self.fleet.workers.values()}
        prepared = {engine: _Prepared(body, how="passes") for engine in engines}
        return self._decide(prepared)

    async def decide(self, request: Request, body: bytes, admission: Admission) -> Decision:
        """Return the decision for a request whose prompt counts."""
        start = time.perf_counter()
        engines = {worker.spec.engine for worker in self.fleet.workers.values()}
        prepared = {
            engine: await self._prepare(request, body, engine, admission) for engine in engines
        }
        for one in prepared.values():
            metrics.GATEWAY_DECISIONS.labels(one.how).inc()
        decision = self._decide(prepared)
        metrics.GATEWAY_DECISION_SECONDS.observe(time.perf_counter() - start)
        return decision

    async def _prepare(
        self, request: Request, body: bytes, engine: str | None, admission: Admission
    ) -> _Prepared:
        """Prepare a request for an engine; one that cannot be is forwarded without hashes."""
        if engine is None:
            return _Prepared(body)
        try:
            first_key = b""
            if may_have_media(body):
                body, items = await with_own_hashes(
                    request, body, engine, admission, self._settings
                )
                first_key = bytes.fromhex(items[0].key) if items else b""
        except Problem as problem:
            return _Prepared(body, how=problem.name)
        except MMHashError as error:
            logger.info("no plan: %r", error)
            return _Prepared(body, how="refused")
        return _Prepared(body, first_key, how="no model")

    def _decide(self, prepared: dict[str | None, _Prepared]) -> Decision:
        candidates = [
            Candidate(
                worker.url,
                prepared[worker.spec.engine].matched.get(worker.url, 0),
                worker.load,
                worker.turn,
                worker.is_healthy,
            )
            for worker in self.fleet.workers.values()
            if worker.spec.engine in prepared
        ]
        first_key = next((one.first_key for one in prepared.values() if one.first_key), b"")
        ranked = rank(
            self._settings.policy,
            candidates,
            load_weight=self._settings.load_weight,
            first_key=first_key,
        )
        plan = None
        if ranked:
            plan = prepared[self.fleet.workers[ranked[0].url].spec.engine].plan
        return Decision(ranked, prepared, plan)
