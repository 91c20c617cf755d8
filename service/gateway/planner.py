"""A request's plan for the engine of some workers, and the request that they get with it."""

from typing import Any, NamedTuple

import msgspec

from mmhash.errors import InputError, LimitError, MMHashError
from mmhash.prompts import Model, Plan
from mmhash.prompts.media import Media
from mmhash.prompts.options import PlanOptions
from mmhash.prompts.planning import OpenedPlan, open_plan
from mmhash_service.annotate.slots import image_of
from mmhash_service.api.problems import Problem
from mmhash_service.gateway.settings import Recipe
from mmhash_service.plan.media import read_media
from mmhash_service.plan.models import Models
from mmhash_service.plan.request import known_media
from mmhash_service.runtime.context import RequestContext


class Planned(NamedTuple):
    """A plan, and the text of the request with the hashes of its media; None if it has none."""

    plan: Plan
    text: bytes | None


class _ModelName(msgspec.Struct):
    model: str = ""


_MODEL_NAME = msgspec.json.Decoder(_ModelName)


def find_model(models: Models, text: bytes) -> Model:
    """Return the model that a request names; a single one is that of all requests."""
    names = models.names
    if len(names) == 1:
        return models.find(names[0])
    try:
        return models.find(_MODEL_NAME.decode(text).model)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Problem("unknown-model") from error


async def plan_for_workers(
    context: RequestContext, model: Model, recipe: Recipe, text: bytes, *, fetches: bool
) -> Planned:
    """Return the plan; a Problem says why there is none.

    Media at URLs has no size unless it is fetched.
    """
    opened, plan = await context.work.run(_open, context, model, recipe, text)
    if plan is not None:
        return Planned(plan, None)
    if not fetches and any(image_of(source.text).is_remote for source in opened.sources):
        raise Problem("unplannable-item")
    context.admission.hold(2 * len(text))  # the request, parsed and written again
    found = await read_media(context, opened.sources)
    media = known_media(context.engines[0], opened, found)
    return await context.work.run(_finish, opened, recipe, media)


def _open(
    context: RequestContext, model: Model, recipe: Recipe, text: bytes
) -> tuple[OpenedPlan, Plan | None]:
    """Open a request; one without media is planned at once."""
    requested = context.engines[0]
    try:
        opened = open_plan(model, requested.engine, requested.version, text)
    except (InputError, LimitError) as error:
        raise Problem("unplannable-prompt") from error
    return opened, None if opened.sources else _plan(opened, recipe, {})


def _finish(opened: OpenedPlan, recipe: Recipe, media: dict[str, Media]) -> Planned:
    plan = _plan(opened, recipe, media)
    try:
        return Planned(plan, msgspec.json.encode(plan.request))
    except (msgspec.MsgspecError, OverflowError, UnicodeEncodeError) as error:
        raise Problem("unplannable-prompt") from error


def _plan(opened: OpenedPlan, recipe: Recipe, media: dict[str, Media]) -> Plan:
    options: dict[str, Any] = {
        "block_size": recipe.block_size,
        "algorithm": recipe.algorithm,
        "seed": recipe.seed,
    }
    try:
        return opened.plan(PlanOptions(media=media, **options))
    except (MMHashError, RecursionError) as error:
        raise Problem("unplannable-prompt") from error
