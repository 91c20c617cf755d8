"""Decide which worker gets a request: hash, plan, match, rank."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from fastapi import Request

from mmhash.engines import vllm
from mmhash.tags import TENANT_TAG_HEADER, tenant_key
from mmhash_service.gateway.expected import UnnamedBlocks
from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.policy import Candidate, Ranked, most_reused, rank
from mmhash_service.gateway.request import (
    Naming,
    RoutedRequest,
    find_model,
    named_model,
    plan_for_workers,
)
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker import Adapter, Worker
from mmhash_service.gateway.worker_spec import EngineSpec
from mmhash_service.items.context import (
    RequestContext,
    build_context,
    build_signer,
    resolve_tenant,
)
from mmhash_service.items.schema import HashQuery
from mmhash_service.limits.capacity import Admission
from mmhash_service.limits.threads import ThreadPool
from mmhash_service.models import Models
from mmhash_service.plan.annotate import (
    FindModel,
    needs_of,
    places_to_fill,
    put_hashes,
    read_to_annotate,
)
from mmhash_service.problems.problem import Problem
from mmhash_service.telemetry import metrics

if TYPE_CHECKING:
    from mmhash_service.gateway.resources import GatewayResources

# The load, in tokens, of a request with a body but no plan: a median prompt with an image.
UNPLANNED_TOKENS = 600

# The most blocks of a request to expect at its worker, to bound the event loop's time for each
# compared worker. With blocks of one token (SGLang) they cover a text of 30 kB.
_MAX_EXPECTED = 8192

# The longest reason in the log for a missing plan, because it may quote the request.
_MAX_REASON = 300


NO_PROMPT = "passes"
"""How to route a request without a prompt."""


class PlanSize(NamedTuple):
    """The size of a planned prompt."""

    tokens: int
    blocks: int


class Prepared(NamedTuple):
    """A request as the workers of an engine receive it."""

    body: bytes
    how: str
    """For the metrics: planned, or the reason why there is no plan."""
    first_key: bytes = b""
    plan: PlanSize | None = None
    matched: Mapping[str, int] = MappingProxyType({})
    event_ids: Sequence[int] = ()
    block_size: int = 1
    unnamed: UnnamedBlocks = UnnamedBlocks()
    """The blocks after `event_ids`, which events do not name."""
    reason: str = ""
    """For the log: why the request has no plan."""
    headers: Sequence[tuple[bytes, bytes]] = ()
    """Headers that the worker gets besides the client's."""

    def candidate(self, worker: Worker, crowding: float) -> Candidate:
        """Return a worker as the policy sees it."""
        matched = self.matched.get(worker.url, 0)
        expected = worker.expected.run(self.event_ids, matched // self.block_size)
        expected *= self.block_size
        named = len(self.event_ids) * self.block_size
        sent = worker.sent.count_tokens(self.unnamed)
        # The name of an unnamed block covers all earlier blocks, of which some workers show none.
        if sent and (matched + expected == named or worker.described.events is None):
            expected = named + sent - matched
        return Candidate(
            worker.url,
            matched_tokens=matched,
            load=worker.load,
            turn=worker.turn,
            is_healthy=worker.is_healthy,
            expected_tokens=expected,
            waiting=worker.waiting,
            crowding=crowding,
        )

    def unheld_blocks(self, ranked: Ranked) -> Sequence[int]:
        """Return the first blocks that the worker does not hold."""
        start = ranked.matched_tokens // self.block_size
        return self.event_ids[start : start + _MAX_EXPECTED]

    def block_after(self, tokens: int) -> bytes:
        """Return the name of the block after these tokens, or of the last block."""
        if not self.event_ids:
            return b""
        last = len(self.event_ids) - 1
        return b"%d" % self.event_ids[min(last, tokens // self.block_size)]


class Decision(NamedTuple):
    """The workers that may get a request, best first, and the request prepared for the best."""

    workers: list[Ranked]
    best: Worker | None
    prepared: Prepared

    @property
    def new_tokens(self) -> int:
        """The estimated number of tokens that the best worker has to compute for the request."""
        plan = self.prepared.plan
        if plan is None or not self.workers:
            return UNPLANNED_TOKENS if self.prepared.body else 0
        return max(
            0, plan.tokens - self.workers[0].matched_tokens - self.workers[0].expected_tokens
        )


logger = logging.getLogger(__name__)

# The most characters of an adapter's name and path, which every block of a prompt hashes on the
# event loop.
_MAX_ADAPTER = 8 << 10


class Router:
    """Decides which workers get a request."""

    def __init__(self, fleet: Fleet, settings: GatewaySettings) -> None:
        self.fleet = fleet
        self._settings = settings
        self.policy = settings.policy

    async def requested_model(self, request: RoutedRequest, work: ThreadPool) -> str:
        """Return the requested model if the workers list different models or adapters."""
        models = self.fleet.models
        if models.is_one_list and not models.has_adapters:
            return ""
        return await request.model(work)

    async def prepare(
        self,
        context: RequestContext,
        models: Models,
        name: str,
        engine: EngineSpec,
        routed: RoutedRequest,
    ) -> Prepared:
        """Plan a request and match it. Without a plan, still insert the hashes of its media."""
        how, reason = "policy", ""
        context.admission.hold(2 * len(routed.text))  # the media, and the rewritten request
        if self.policy == "longest-prefix":
            try:
                return await self._plan(context, models, name, engine, routed)
            except Problem as problem:
                how, reason = problem.name, _reason(problem)
        annotated = await self._annotate(context, routed, partial(named_model, models), how, engine)
        return annotated._replace(reason=reason)

    async def _plan(
        self,
        context: RequestContext,
        models: Models,
        name: str,
        engine: EngineSpec,
        routed: RoutedRequest,
    ) -> Prepared:
        adapter = self._adapter(context, name, engine)
        base = await routed.model(context.work) if adapter is None else adapter.base
        planned = await plan_for_workers(
            context,
            find_model(models, base),
            Naming(engine, self._settings.hashes)
            if adapter is None
            else Naming(engine, self._settings.hashes, name, adapter.path),
            routed,
            self._find_matches,
            fetches=self._settings.media_urls == "fetch",
        )
        plan = planned.plan
        return Prepared(
            planned.text,
            "planned",
            first_key=plan.items[0].key.bytes if plan.items else b"",
            plan=PlanSize(len(plan.token_ids), len(plan.blocks)),
            matched=planned.matched,
            event_ids=plan.event_ids,
            block_size=planned.block_size,
            unnamed=planned.unnamed,
        )

    def _adapter(self, context: RequestContext, name: str, engine: EngineSpec) -> Adapter | None:
        """Return the LoRA adapter that a request names, if the adapter counts in block names."""
        (requested,) = context.engines
        has_adapters = self.fleet.models.has_adapters
        if not (has_adapters and "lora" in requested.engine.prompt_fields(requested.version)):
            return None
        found = self.fleet.adapters(name, engine)
        if not found:
            return None
        adapter, *others = found
        # Names of blocks depend on the adapter's path, and every block hashes name and path.
        if others or len(name) + len(adapter.path) > _MAX_ADAPTER:
            raise Problem("unplannable-prompt")
        return adapter

    def _find_matches(self, event_ids: Sequence[int], block_size: int) -> dict[str, int]:
        matches = self.fleet.index.match(event_ids, block_size)
        return {url: match.tokens for url, match in matches.items()}

    async def _annotate(
        self,
        context: RequestContext,
        routed: RoutedRequest,
        find_named: FindModel,
        how: str,
        engine: EngineSpec,
    ) -> Prepared:
        urls, work, (requested,) = self._settings.media_urls, context.work, context.engines
        try:
            request = await routed.run(work, read_to_annotate, requested, routed.document)
        except Problem:  # the request has no place for hashes, like a completion
            return Prepared(routed.text, how)
        places = places_to_fill(request, urls)
        if not places:
            return Prepared(request.write(), how)
        sources = [place.source for place in places]
        media = await routed.resolve(context, sources, needs_of(request, urls))
        items = await routed.run(work, put_hashes, context, request, places, media, find_named)
        body = routed.text
        if not self._names_itself(engine, context):
            body = await routed.run(work, request.write)
        key = items[0].item.key.bytes
        return Prepared(body, how, key, unnamed=UnnamedBlocks([key], UNPLANNED_TOKENS))

    def _names_itself(self, engine: EngineSpec, context: RequestContext) -> bool:
        """Return True if the workers name media by their files, as plans do."""
        if engine.server != "python":
            return True
        is_private = context.signer is not None or context.tenant_secret is not None
        if self._settings.hashes == "key" or is_private or engine.model_id is None:
            return False
        (requested,) = context.engines
        return requested.engine.name == "vllm" and vllm.hashes_files(requested.version)

    def rank_workers(
        self,
        prepared: Mapping[EngineSpec | None, Prepared],
        model: str = "",
        tried: Collection[Worker] = (),
        may_choose: Callable[[Worker], bool] | None = None,
    ) -> Decision:
        """Rank the workers for a request that is prepared for every engine of the fleet."""
        first_key = next((one.first_key for one in prepared.values() if one.first_key), b"")
        crowding = self.fleet.crowding()
        candidates = [
            prepared[worker.engine].candidate(worker, crowding[worker.url])
            for worker in self.fleet.workers_for(model)
            if worker not in tried and (may_choose is None or may_choose(worker))
        ]
        size = next((one.plan for one in prepared.values() if one.plan), None)
        ranked = rank(
            self.policy,
            candidates,
            prompt_tokens=size.tokens if size else UNPLANNED_TOKENS,
            conversation_reuse=self.fleet.conversations.reused_tokens,
            first_key=first_key,
            new_key=first_key or self._new_block(candidates, prepared),
        )
        if not ranked:
            return Decision(ranked, None, Prepared(b"", "no-workers"))
        best = self.fleet.workers[ranked[0].url]
        return Decision(ranked, best, prepared[best.engine])

    def _new_block(
        self, candidates: list[Candidate], prepared: Mapping[EngineSpec | None, Prepared]
    ) -> bytes:
        """Return the name of the first block that even the workers with most of the prompt lack."""
        equal = most_reused(candidates)
        if not equal:
            return b""
        engine = self.fleet.workers[equal[0].url].engine
        return prepared[engine].block_after(equal[0].reused_tokens)


class Routing:
    """A request, prepared once per engine and ranked anew for each attempt.

    The fleet may change while the request is prepared or waits: workers join and leave, or change
    their engine.
    """

    def __init__(
        self,
        resources: "GatewayResources",
        request: Request,
        routed: RoutedRequest,
        admission: Admission,
        *,
        is_prompt: bool = True,
        is_counted: bool = True,
        may_choose: Callable[[Worker], bool] | None = None,
    ) -> None:
        """Take a request. `may_choose` limits the workers.

        The metrics count the request unless nothing is sent.
        """
        self._resources = resources
        self._request = request
        self._routed = routed
        self._admission = admission
        self.is_prompt = is_prompt
        self._is_counted = is_prompt and is_counted
        self._may_choose = may_choose
        self._prepared: dict[EngineSpec | None, Prepared] = {}
        self.tried: set[Worker] = set()

    async def decide(self) -> Decision:
        """Decide among the current workers that were not tried yet."""
        start = time.perf_counter()
        decision = await self._decide()
        if self._is_counted and not self.tried:
            metrics.labelled(metrics.GATEWAY_DECISIONS, decision.prepared.how).inc()
            metrics.GATEWAY_DECISION_SECONDS.observe(time.perf_counter() - start)
        return decision

    async def _decide(self) -> Decision:
        router = self._resources.router
        while True:
            model = await router.requested_model(self._routed, self._resources.work)
            engines = {worker.engine for worker in router.fleet.workers.values()}
            missing = engines - self._prepared.keys()
            if not missing:  # the fleet has not changed since
                return router.rank_workers(self._prepared, model, self.tried, self._may_choose)
            for engine in missing:
                prepared = await self._prepare(model, engine)
                self._prepared[engine] = prepared._replace(headers=self._tenant_headers(engine))

    async def _prepare(self, model: str, engine: EngineSpec | None) -> Prepared:
        """Prepare the request for workers of an engine, or forward it as it is."""
        routed, resources = self._routed, self._resources
        if not self.is_prompt:
            return Prepared(routed.text, NO_PROMPT)
        if engine is None:
            return Prepared(routed.text, "no-engine")
        try:
            query = _hash_query(engine.name, bool(resources.settings.tag_secrets))
            context = build_context(resources, self._request, query, self._admission)
            return await resources.router.prepare(context, resources.models, model, engine, routed)
        except Problem as problem:
            return Prepared(routed.text, problem.name, reason=_reason(problem))
        except Exception:
            # The worker may still answer a request that fails here.
            logger.exception("a request could not be prepared")
            return Prepared(routed.text, "internal-error")

    def _tenant_headers(self, engine: EngineSpec | None) -> Sequence[tuple[bytes, bytes]]:
        """Return the tag by which a plugin takes the tenant that the request names."""
        settings = self._resources.settings
        if engine is None or not engine.by_tenant or not settings.tag_secrets:
            return ()
        tenant = resolve_tenant(self._request, settings)
        if tenant is None:
            return ()
        signer = build_signer(settings, (engine.name,), tenant)
        return [(TENANT_TAG_HEADER, signer.tag(tenant_key(tenant.name)).encode())]


def _reason(problem: Problem) -> str:
    """Return why a request has no plan, in words."""
    return problem.reason or str(problem.__cause__ or "")[:_MAX_REASON]


@cache  # the settings name only a few engines
def _hash_query(engine: str, sign: bool) -> HashQuery:
    return HashQuery(engines=engine, sign=sign)
