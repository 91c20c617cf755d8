"""A request from its text to its plan."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mmhash.errors import InputError, LimitError, MMHashError
from mmhash.prompts import MediaSize, Plan, PlannedItem
from mmhash.prompts.headers import engine_size
from mmhash.prompts.media import Media, MediaSource
from mmhash.prompts.options import PlanOptions
from mmhash.prompts.planning import OpenedPlan, open_plan
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas.prompts import PlanQuery
from mmhash_service.bodies.parsing import refuse_many_values
from mmhash_service.engines import RequestedEngine
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import describe
from mmhash_service.plan.media import SizedItem, read_media

if TYPE_CHECKING:
    from mmhash.prompts import Model


async def plan_request(
    context: RequestContext, model: "Model", query: PlanQuery, text: bytes
) -> dict[str, Any]:
    """Return the answer of `POST /plan`, as values that JSON has."""
    (requested,) = context.engines
    # The parsed request, and the response that has it again.
    context.admission.hold(3 * len(text))
    opened = await context.work.run(open_request, model, requested, text)
    found = await read_media(context, opened.sources)
    threads = context.prompts.for_size(text_size(opened, text), len(found))
    return await threads.run(_finish, context, opened, query, found)


def text_size(opened: OpenedPlan, text: bytes) -> int:
    """Return the bytes of a request without those of its media."""
    return len(text) - sum(len(source.text) for source in opened.sources)


def open_request(model: "Model", requested: RequestedEngine, text: bytes) -> OpenedPlan:
    """Read a request to plan; one that cannot be read is the problem `unplannable-prompt`."""
    refuse_many_values(text)
    try:
        return open_plan(model, requested.engine, requested.version, text)
    except (InputError, LimitError) as error:
        raise Problem("unplannable-prompt") from error


def _finish(
    context: RequestContext,
    opened: OpenedPlan,
    query: PlanQuery,
    found: dict[MediaSource, SizedItem],
) -> dict[str, Any]:
    (requested,) = context.engines
    plan = plan_opened(context, opened, found, PlanOptions(**query.plan_options()))
    items = [
        _item(planned, found[source], requested)
        for planned, source in zip(plan.items, opened.sources, strict=True)
    ]
    answer = plan.payload(items)
    return answer if requested.recipe is None else answer | {"recipe": requested.recipe}


def plan_opened(
    context: RequestContext,
    opened: OpenedPlan,
    found: dict[MediaSource, SizedItem],
    options: PlanOptions,
) -> Plan:
    """Return the plan of a request with its media; a Problem says why there is none."""
    (requested,) = context.engines
    media = {
        source.text: _media(requested, opened.model_type, sized) for source, sized in found.items()
    }
    try:
        return opened.plan(replace(options, media=media, tenant=context.tenant_secret))
    except (MMHashError, RecursionError) as error:
        raise Problem("unplannable-prompt") from error


def _media(requested: RequestedEngine, model_type: str, sized: SizedItem) -> Media:
    try:
        width, height = engine_size(
            sized.header, requested.engine.name, requested.version, model_type=model_type
        )
    except InputError as error:
        raise Problem("unplannable-item") from error
    size = MediaSize(width=width, height=height)
    content = sized.item.digest
    is_of_file = sized.item.kind == "bytes" and content.algorithm == "blake3"
    return Media(size, sized.item.key, sized.item.orientation, content if is_of_file else None)


def _item(planned: PlannedItem, sized: SizedItem, requested: RequestedEngine) -> dict[str, Any]:
    """Return an item of the response: as `/annotate` has it, and its place in the prompt."""
    fields = dict(planned.fields)
    if requested.recipe is not None:
        fields["recipe"] = requested.recipe
    return describe(sized.item, {requested.name: fields}) | planned.payload()
