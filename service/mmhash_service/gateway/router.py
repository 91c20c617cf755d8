"""Decide which worker gets a request: hash, plan, match, rank."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from fastapi import Request
from msgspec import Struct

from mmhash import Digest
from mmhash.engines import vllm
from mmhash.prompts import Plan
from mmhash.prompts.options import PlanOptions, complete
from mmhash.prompts.planner import Planner
from mmhash.tags import TENANT_TAG_HEADER, tenant_key
from mmhash_service.gateway.discovery import Adapter
from mmhash_service.gateway.expected import UnnamedBlocks, name_blocks
from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.policy import Candidate, Policy, rank
from mmhash_service.gateway.request import RoutedRequest
from mmhash_service.gateway.resources import GatewayResources
from mmhash_service.gateway.worker import Worker
from mmhash_service.gateway.worker_spec import EngineSpec
from mmhash_service.items.context import (
    RequestContext,
    Signer,
    build_context,
    build_signer,
    resolve_tenant,
)
from mmhash_service.items.schema import HashQuery
from mmhash_service.limits.capacity import Admission
from mmhash_service.plan.annotate import needs_of, places_to_fill, put_hashes, read_to_annotate
from mmhash_service.plan.media import Resolved
from mmhash_service.plan.request import Planning
from mmhash_service.problems.problem import Problem
from mmhash_service.telemetry import metrics

logger = logging.getLogger(__name__)

# A request with a body but no plan counts as this many tokens: a median prompt with an image.
UNPLANNED_TOKENS = 600

# Expect at most this many blocks of a request at its worker, because the event loop looks each of
# them up for every worker. With blocks of one token (SGLang) they cover a text of 30 kB.
_MAX_EXPECTED = 8192

# Log at most this many characters of the reason for a missing plan. It may quote the request.
_MAX_REASON = 300

# The most characters in an adapter's name and path. The event loop hashes both for every block of
# a prompt.
_MAX_ADAPTER = 8 << 10

NO_PROMPT = "passes"
"""What metrics and logs say of a request without a prompt."""


class PlanSize(Struct):
    """The size of a planned prompt."""

    tokens: int
    blocks: int


class Prepared(Struct):
    """A request as the workers of an engine receive it."""

    body: bytes
    how: str
    """For the metrics: planned, or the reason why there is no plan."""
    first_key: bytes = b""
    plan: PlanSize | None = None
    matched: Mapping[str, int] = {}
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
        # An unnamed block follows all named blocks. A worker without events shows no named blocks,
        # but was sent them too.
        if sent and (matched + expected == named or worker.described.events is None):
            expected = named + sent - matched
        next_block = None
        if self.event_ids:
            last = len(self.event_ids) - 1
            next_block = self.event_ids[min(last, (matched + expected) // self.block_size)]
        return Candidate(
            worker.url,
            matched,
            worker.load,
            worker.turn,
            worker.is_healthy,
            expected,
            worker.waiting,
            crowding,
            next_block,
        )

    def unheld_blocks(self, ranked: Candidate) -> Sequence[int]:
        """Return the first blocks that the worker does not hold."""
        start = ranked.matched_tokens // self.block_size
        return self.event_ids[start : start + _MAX_EXPECTED]


class Decision(NamedTuple):
    """The workers that may get a request, best first, and the request prepared for the best."""

    workers: list[Candidate]
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


def rank_workers(
    fleet: Fleet,
    policy: Policy,
    prepared: Mapping[EngineSpec | None, Prepared],
    *,
    model: str = "",
    tried: Collection[str] = (),
    may_choose: Callable[[Worker], bool] | None = None,
) -> Decision:
    """Rank the workers for a request. `prepared` has it for every engine of the fleet."""
    crowding = fleet.crowding()
    candidates = [
        prepared[worker.engine].candidate(worker, crowding[worker.url])
        for worker in fleet.workers_for(model)
        if worker.url not in tried and (may_choose is None or may_choose(worker))
    ]
    size = next((one.plan for one in prepared.values() if one.plan), None)
    ranked = rank(
        policy,
        candidates,
        prompt_tokens=size.tokens if size else UNPLANNED_TOKENS,
        conversation_reuse=fleet.conversations.reused_tokens,
        first_key=next((one.first_key for one in prepared.values() if one.first_key), b""),
    )
    if not ranked:
        return Decision(ranked, None, Prepared(b"", "no-workers"))
    best = fleet.workers[ranked[0].url]
    return Decision(ranked, best, prepared[best.engine])


class Routing:
    """A request, prepared once per engine and ranked anew for each attempt.

    The fleet may change while the request is prepared or waits: workers join and leave, or change
    their engine.
    """

    def __init__(
        self,
        resources: GatewayResources,
        request: Request,
        routed: RoutedRequest,
        admission: Admission,
        *,
        is_prompt: bool = True,
        is_counted: bool = True,
        may_choose: Callable[[Worker], bool] | None = None,
    ) -> None:
        """Take a request. `may_choose` limits the workers.

        `is_counted` is False if no worker will get the request, so metrics do not count it.
        """
        self._resources = resources
        self._gateway = resources.gateway
        self._fleet = resources.fleet
        self._request = request
        self._routed = routed
        self._admission = admission
        self.is_prompt = is_prompt
        self._is_counted = is_prompt and is_counted
        self._may_choose = may_choose
        self._prepared: dict[EngineSpec | None, Prepared] = {}
        # URLs, because a worker that is listed anew with another release is the same server.
        self.tried: set[str] = set()

    async def decide(self) -> Decision:
        """Decide among the current workers that were not tried yet."""
        start = time.perf_counter()
        while True:
            model = await self._requested_model()
            missing = {one.engine for one in self._fleet.workers.values()} - self._prepared.keys()
            if not missing:  # the fleet has not changed since
                break
            for engine in missing:
                self._prepared[engine] = prepared = await self._prepare(model, engine)
                prepared.headers = self._tenant_headers(engine)
        decision = rank_workers(
            self._fleet,
            self._gateway.policy,
            self._prepared,
            model=model,
            tried=self.tried,
            may_choose=self._may_choose,
        )
        if self._is_counted and not self.tried:
            metrics.labelled(metrics.GATEWAY_DECISIONS, decision.prepared.how).inc()
            metrics.GATEWAY_DECISION_SECONDS.observe(time.perf_counter() - start)
        return decision

    async def _requested_model(self) -> str:
        """Return the requested model if the workers list different models or adapters."""
        if self._fleet.has_one_list and not self._fleet.has_adapters:
            return ""
        return await self._routed.model(self._resources.work)

    async def _prepare(self, model: str, engine: EngineSpec | None) -> Prepared:
        """Prepare the request for workers of an engine, or forward it as it is."""
        text = self._routed.text
        if not self.is_prompt:
            return Prepared(text, NO_PROMPT)
        if engine is None:
            return Prepared(text, "no-engine")
        try:
            query = _hash_query(engine.name, bool(self._resources.settings.tag_secrets))
            context = build_context(self._resources, self._request, query, self._admission)
            return await self._plan_or_annotate(context, model, engine)
        except Problem as problem:
            return Prepared(text, problem.name, reason=_reason(problem))
        except Exception:
            # The worker may still answer a request that fails here.
            logger.exception("a request could not be prepared")
            return Prepared(text, "internal-error")

    async def _plan_or_annotate(
        self, context: RequestContext, model: str, engine: EngineSpec
    ) -> Prepared:
        """Plan a request and match it. Without a plan, still insert the hashes of its media."""
        how, reason = "policy", ""
        self._admission.hold(2 * len(self._routed.text))  # the media, and the rewritten request
        if self._gateway.policy == "longest-prefix":
            try:
                return await self._plan(context, model, engine)
            except Problem as problem:
                how, reason = problem.name, _reason(problem)
        prepared = await self._annotate(context, how, engine)
        prepared.reason = reason
        return prepared

    async def _plan(self, context: RequestContext, name: str, engine: EngineSpec) -> Prepared:
        adapter = self._adapter(context, name, engine)
        base = await self._routed.model(context.work) if adapter is None else adapter.base
        models, signer = self._resources.models, context.signer
        options = _plan_options(
            engine,
            context.tenant_secret,
            None if adapter is None else (name, adapter.path),
            # Tags vouch for the hashes in a request.
            hashes=self._gateway.hashes if signer is None else "key",
            is_signed=signer is not None,
        )

        def finish(planner: Planner, plan: Plan, _media: Resolved) -> Prepared:
            # An engine that names files itself gets no hash, so there is nothing to sign.
            if signer is not None and plan.items and engine.server == "python":
                plan.annotated.set_tags(_tags(signer, plan, planner))
            matches = self._fleet.index.match(plan.event_ids, planner.block_size)
            return Prepared(
                plan.annotated.write(),
                "planned",
                first_key=plan.items[0].key.bytes if plan.items else b"",
                plan=PlanSize(len(plan.token_ids), len(plan.event_ids)),
                matched={url: match.tokens for url, match in matches.items()},
                event_ids=plan.event_ids,
                block_size=planner.block_size,
                unnamed=name_blocks(plan, planner.block_size),
            )

        planning = Planning(
            context,
            models.find(models.name_for(base)),
            self._routed.document,
            options,
            finish,
            fetches=context.fetches,
            is_light=self._routed.is_light,
            media=self._routed.media,
        )
        return await planning.run()

    def _adapter(self, context: RequestContext, name: str, engine: EngineSpec) -> Adapter | None:
        """Return the LoRA adapter that a request names, if the adapter counts in block names."""
        if not self._fleet.has_adapters:
            return None
        (requested,) = context.engines
        if "lora" not in requested.engine.prompt_fields(requested.version):
            return None
        found = self._fleet.adapters(name, engine)
        if not found:
            return None
        adapter, *others = found
        # Names of blocks depend on the adapter's path, and every block hashes name and path.
        if others or len(name) + len(adapter.path) > _MAX_ADAPTER:
            raise Problem("unplannable-prompt")
        return adapter

    async def _annotate(self, context: RequestContext, how: str, engine: EngineSpec) -> Prepared:
        routed, work = self._routed, context.work
        (requested,) = context.engines
        try:
            request = await routed.run(work, read_to_annotate, requested, routed.document)
        except Problem:  # the request has no place for hashes, like a completion
            return Prepared(routed.text, how)
        places = places_to_fill(request, fetches=context.fetches)
        if not places:
            return Prepared(request.write(), how)
        sources = [place.source for place in places]
        media = await routed.resolve(context, sources, needs_of(request))
        models = self._resources.models
        model = models.get(models.name_for(routed.document.model))
        items = await routed.run(work, put_hashes, context, request, places, media, model)
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
        if self._gateway.hashes == "key" or is_private or engine.model_id is None:
            return False
        (requested,) = context.engines
        return requested.engine.name == "vllm" and vllm.hashes_files(requested.version)

    def _tenant_headers(self, engine: EngineSpec | None) -> Sequence[tuple[bytes, bytes]]:
        """Return the header that proves the request's tenant to the plugin, if it needs one."""
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


@lru_cache(256)  # engines, tenants and adapters are few
def _plan_options(
    engine: EngineSpec,
    tenant: bytes | None,
    adapter: tuple[str, str] | None,
    *,
    hashes: Literal["engine", "key"],
    is_signed: bool,
) -> PlanOptions:
    """Return the options of plans for an engine, and for an adapter by its name and path."""
    if engine.server == "mmhash" and not (engine.by_tenant and is_signed):
        tenant = None  # the plugin does not know the request's tenant
    lora, lora_path = adapter or (None, None)
    return complete(
        hashes=hashes, tenant=tenant, lora=lora, lora_path=lora_path, **engine.plan_options()
    )


def _tags(signer: Signer, plan: Plan, planner: Planner) -> list[str]:
    """Return the tags of the hashes in a planned request."""
    if planner.request.content_prefix is None:
        names = [item.key for item in plan.items]
    else:
        inline = (source for source in planner.sources if not source.is_remote)
        names = [Digest("blake3", source.sha256()) for source in inline]
    return [signer.tag(name) for name in dict.fromkeys(names)]
