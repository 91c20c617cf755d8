"""A request's plan for the engine of some workers, and the request that they get with it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mmhash.prompts import Plan
from mmhash.prompts.media import MediaSource
from mmhash.prompts.options import PlanOptions
from mmhash.prompts.planning import OpenedPlan
from mmhash_service.annotate.slots import image_of
from mmhash_service.api.problems import Problem
from mmhash_service.gateway.hashes import is_light
from mmhash_service.gateway.served_models import requested_model
from mmhash_service.gateway.unnamed import UnnamedBlocks, name_blocks
from mmhash_service.gateway.worker_spec import EngineSpec
from mmhash_service.items.context import RequestContext
from mmhash_service.models import Models
from mmhash_service.plan.media import (
    Found,
    SizedItem,
    read_inline,
    read_rest,
    recall_inline,
    remember,
    sized_only,
)
from mmhash_service.plan.request import open_request, plan_opened, text_size

if TYPE_CHECKING:
    from mmhash.prompts import Model

# A text of 4 kB is planned in 0.4 ms, with an image of 1000 tokens in 0.8. A job in a thread takes
# 0.3 ms of the core more. A tokenizer with an expression that is not known can take minutes.
_INLINE_MAX = 4 << 10


FindMatches = Callable[[Sequence[int], int], Mapping[str, int]]
"""Returns the leading tokens of a prompt that each worker has, by its blocks and their size."""


class Naming(NamedTuple):
    """The engine and the adapter by which the blocks of a request are named."""

    engine: EngineSpec
    lora: str | None = None
    lora_path: str | None = None


class Planned(NamedTuple):
    """A plan, and the request with it."""

    plan: Plan
    text: bytes | None
    """The text of the request with the hashes of its media; None if it has none."""
    unnamed: UnnamedBlocks
    matched: Mapping[str, int]


def named_model(models: Models, name: str) -> "Model | None":
    """Return the model that a request names, or None; a single one is that of all requests."""
    return models.get(_single(models) or name)


def find_model(models: Models, text: bytes, name: str = "") -> "Model":
    """Return the model of a request; the problem `unknown-model` if there is none.

    `name` is the one in its text, if that has been read, or the base of the adapter named there.
    """
    return models.find(_single(models) or name or requested_model(text))


def _single(models: Models) -> str | None:
    names = models.names
    return names[0] if len(names) == 1 else None


async def plan_for_workers(
    context: RequestContext,
    model: "Model",
    naming: Naming,
    text: bytes,
    find_matches: FindMatches,
    *,
    fetches: bool,
) -> Planned:
    """Return the plan; a Problem says why there is none.

    Media at URLs has no size unless it is fetched. A prompt is matched where it is planned: one of
    120 000 blocks takes some milliseconds.
    """
    context.admission.hold(2 * len(text))  # the request, parsed and written again
    steps = _Steps(context, model, naming, text, find_matches, fetches)
    if is_light(text) and model.has_known_expressions:
        opened = steps.open()
        if text_size(opened, text) <= _INLINE_MAX:
            known = recall_inline(context, opened.sources)
            if known is not None:
                return steps.finish(opened, known)
        begun = await context.prompts.short.run(steps.begin, opened)
    else:
        begun = await context.prompts.short.run(steps.open_and_begin)
    remember(context, begun.found)
    if begun.planned is not None:
        return begun.planned
    found = await read_rest(context, begun.found)
    threads = context.prompts.for_size(text_size(begun.opened, text), len(found))
    return await threads.run(steps.finish, begun.opened, found)


class _Begun(NamedTuple):
    """A request with its media, some of which may still have to be fetched, or have no plan yet."""

    opened: OpenedPlan
    found: Found
    planned: Planned | None


class _Steps(NamedTuple):
    """The steps of one plan, on the event loop or in threads."""

    context: RequestContext
    model: "Model"
    naming: Naming
    text: bytes
    find_matches: FindMatches
    fetches: bool

    def open(self) -> OpenedPlan:
        opened = open_request(self.model, self.context.engines[0], self.text)
        if not self.fetches and any(image_of(one.text).is_remote for one in opened.sources):
            raise Problem("unplannable-item")
        return opened

    def open_and_begin(self) -> _Begun:
        return self.begin(self.open())

    def begin(self, opened: OpenedPlan) -> _Begun:
        """Plan a request unless it is long or something has to be fetched: in one job.

        Three jobs take 0.4 ms more of the core (bench/gateway_decisions.py).
        """
        context = self.context
        found = read_inline(context, opened.sources)
        sized = sized_only(found)
        threads = context.prompts.for_size(text_size(opened, self.text), len(found))
        is_short = len(sized) == len(found) and threads is context.prompts.short
        planned = self.finish(opened, sized) if is_short else None
        return _Begun(opened, found, planned)

    def finish(self, opened: OpenedPlan, found: dict[MediaSource, SizedItem]) -> Planned:
        engine = self.naming.engine
        options = PlanOptions(
            block_size=engine.block_size,
            block_algorithm=engine.block_algorithm,
            seed=engine.seed,
            lora=self.naming.lora,
            lora_path=self.naming.lora_path,
            server=engine.server,
            mm_hasher_algorithm=engine.mm_hasher_algorithm,
        )
        plan = plan_opened(self.context, opened, found, options)
        # For each policy: tokens that a worker was sent before count neither in its load, by which
        # least-load chooses, nor as computed in the metrics.
        unnamed = name_blocks(plan, engine.tokens_per_block)
        matched = self.find_matches(plan.event_ids, engine.tokens_per_block)
        if not found:
            return Planned(plan, None, unnamed, matched)
        try:
            return Planned(plan, msgspec.json.encode(plan.request), unnamed, matched)
        except (msgspec.MsgspecError, OverflowError, UnicodeEncodeError) as error:
            raise Problem("unplannable-prompt") from error
