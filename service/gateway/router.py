"""The decision of a request's worker: hashes, plan, match, rank."""

import logging
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from fastapi import Request

from mmhash.prompts.planning import BLOCK_SIZES
from mmhash_service.api.problems import Problem
from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.media import build_own_context, may_have_media, with_own_hashes
from mmhash_service.gateway.planner import find_model, plan_for_workers
from mmhash_service.gateway.policy import Candidate, Ranked, most_reused, rank
from mmhash_service.gateway.settings import GatewaySettings, Recipe
from mmhash_service.gateway.worker import Worker
from mmhash_service.runtime import metrics
from mmhash_service.runtime.capacity import Admission
from mmhash_service.runtime.context import RequestContext

logger = logging.getLogger(__name__)

# The load of a request that has no plan, in tokens: a median prompt with an image.
UNPLANNED_TOKENS = 600


class PlanSize(NamedTuple):
    """The size of a planned prompt."""

    tokens: int
    blocks: int


class _Prepared(NamedTuple):
    """A request as the workers of one recipe get it."""

    body: bytes
    how: str
    """In the metrics: planned, or the reason for no plan."""
    first_key: bytes = b""
    plan: PlanSize | None = None
    matched: Mapping[str, int] = MappingProxyType({})
    event_ids: Sequence[int] = ()
    block_size: int = 1

    def candidate(self, worker: Worker) -> Candidate:
        """Return a worker as the policy sees it."""
        matched = self.matched.get(worker.url, 0)
        expected = worker.expected.run(self.event_ids, matched // self.block_size)
        return Candidate(
            worker.url,
            matched,
            worker.load,
            worker.turn,
            worker.is_healthy,
            expected * self.block_size,
        )

    def unheld_blocks(self, ranked: Ranked) -> Sequence[int]:
        """Return the blocks that a worker does not hold."""
        return self.event_ids[ranked.matched_tokens // self.block_size :]

    def block_after(self, tokens: int) -> bytes:
        """Return the name of the block behind these tokens, or else of the last one."""
        blocks = self.event_ids[: tokens // self.block_size + 1]
        return b"%d" % blocks[-1] if blocks else b""


class Decision(NamedTuple):
    """The workers to try, the best one first, and the request that each of them gets."""

    workers: list[Ranked]
    prepared: dict[Recipe | None, _Prepared]
    plan: PlanSize | None

    def uncached_tokens(self, ranked: Ranked) -> int:
        """Return the tokens that a worker has to compute for the request, by estimate."""
        if self.plan is None:
            return UNPLANNED_TOKENS
        return max(0, self.plan.tokens - ranked.matched_tokens - ranked.expected_tokens)

    def body_of_best(self, fleet: Fleet, text: bytes) -> bytes:
        """Return the request for the best worker; without any worker, the text."""
        if not self.workers:
            return text
        return self.prepared[fleet.workers[self.workers[0].url].spec.recipe].body


class Router:
    """Decides which workers get a request."""

    def __init__(self, fleet: Fleet, settings: GatewaySettings) -> None:
        self.fleet = fleet
        self._settings = settings
        self.policy = settings.policy

    def unplanned(self, body: bytes) -> Decision:
        """Return a decision by load, for a request that is forwarded as it is."""
        return self._decide({recipe: _Prepared(body, "passes") for recipe in self._recipes()})

    async def decide(self, request: Request, body: bytes, admission: Admission) -> Decision:
        """Return the decision for a request whose prompt counts."""
        start = time.perf_counter()
        prepared = {
            recipe: await self._prepare(request, body, recipe, admission)
            for recipe in self._recipes()
        }
        for one in prepared.values():
            metrics.GATEWAY_DECISIONS.labels(one.how).inc()
        decision = self._decide(prepared)
        metrics.GATEWAY_DECISION_SECONDS.observe(time.perf_counter() - start)
        return decision

    def _recipes(self) -> set[Recipe | None]:
        return {worker.spec.recipe for worker in self.fleet.workers.values()}

    async def _prepare(
        self, request: Request, body: bytes, recipe: Recipe | None, admission: Admission
    ) -> _Prepared:
        """Prepare a request for workers of a recipe; one that cannot be is forwarded as it is."""
        if recipe is None:
            return _Prepared(body, "no-engine")
        try:
            context = build_own_context(request, recipe.engine, admission, self._settings)
            return await self._plan(request, context, recipe, body)
        except Problem as problem:
            return _Prepared(body, problem.name)
        except Exception:
            # The worker may well answer a request that fails here.
            logger.exception("a request cannot be prepared")
            return _Prepared(body, "internal-error")

    async def _plan(
        self, request: Request, context: RequestContext, recipe: Recipe, body: bytes
    ) -> _Prepared:
        """Plan a request and match it; without a plan it still gets the hashes of its media."""
        models = request.app.state.models
        try:
            model = find_model(models, body)
            fetches = self._settings.media_urls == "fetch"
            planned = await plan_for_workers(context, model, recipe, body, fetches=fetches)
        except Problem as problem:
            return await self._annotate(context, body, problem.name)
        plan = planned.plan
        if planned.text is not None and context.signer is not None:
            body, _ = await with_own_hashes(context, body, self._settings)  # with the tags
        elif planned.text is not None:
            body = planned.text
        matches = self.fleet.index.match(plan.event_ids, recipe.block_size)
        return _Prepared(
            body,
            "planned",
            plan.items[0].key.bytes if plan.items else b"",
            PlanSize(len(plan.token_ids), len(plan.blocks)),
            {url: match.tokens for url, match in matches.items()},
            plan.event_ids,
            recipe.block_size or BLOCK_SIZES[context.engines[0].engine.name],
        )

    async def _annotate(self, context: RequestContext, body: bytes, how: str) -> _Prepared:
        if not await may_have_media(body, context.work):
            return _Prepared(body, how)
        body, items = await with_own_hashes(context, body, self._settings)
        return _Prepared(body, how, bytes.fromhex(items[0].key) if items else b"")

    def _decide(self, prepared: dict[Recipe | None, _Prepared]) -> Decision:
        candidates = [
            prepared[worker.spec.recipe].candidate(worker)
            for worker in self.fleet.workers.values()
            if worker.spec.recipe in prepared
        ]
        first_key = next((one.first_key for one in prepared.values() if one.first_key), b"")
        size = next((one.plan for one in prepared.values() if one.plan), None)
        ranked = rank(
            self._settings.policy,
            candidates,
            load_weight=self._settings.load_weight,
            prompt_tokens=size.tokens if size else UNPLANNED_TOKENS,
            first_key=first_key,
            new_key=first_key or self._new_block(candidates, prepared),
        )
        plan = None
        if ranked:
            plan = prepared[self.fleet.workers[ranked[0].url].spec.recipe].plan
        return Decision(ranked, prepared, plan)

    def _new_block(
        self, candidates: list[Candidate], prepared: dict[Recipe | None, _Prepared]
    ) -> bytes:
        """Return the name of the first block that the workers which have most lack."""
        equal = most_reused(candidates)
        if not equal:
            return b""
        recipe = self.fleet.workers[equal[0].url].spec.recipe
        return prepared[recipe].block_after(equal[0].reused_tokens)
