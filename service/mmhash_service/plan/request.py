"""Take a request from its text to its plan, by the sizes of its media."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mmhash.errors import InputError, LimitError, MMHashError
from mmhash.prompts import Media, MediaSize, Plan, PlannedItem
from mmhash.prompts.headers import engine_size
from mmhash.prompts.options import PlanOptions, complete
from mmhash.prompts.planning import OpenedPlan, open_plan
from mmhash.prompts.processor.client import ModelProcessor, ProcessorError
from mmhash.prompts.processor.messages import Question
from mmhash.requests import (
    Document,
    MediaSource,
    RequestError,
    ShortText,
    UnplannedError,
    UnreadableUrlError,
    form_of_path,
)
from mmhash_service.bodies.reading import refuse_many_values
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import RequestedEngine, describe, require
from mmhash_service.limits.threads import run_few
from mmhash_service.plan.annotate import unreadable
from mmhash_service.plan.media import PLAN_NEEDS, Resolved, ResolvedMedia, resolve
from mmhash_service.plan.schema import PlanQuery
from mmhash_service.problems.problem import InvalidPart, Problem, naming

if TYPE_CHECKING:
    from mmhash.prompts import Model

_UNREAD = "mmhash reads only the sizes of images, and of WAV clips in the request"


def open_document(text: bytes | ShortText, path: str | None) -> Document:
    """Open the body of a request for a path."""
    short = text if isinstance(text, ShortText) else ShortText(text)
    refuse_many_values(short.text)
    try:
        return Document(short, form_of_path(path))
    except RequestError as error:
        raise unreadable(error) from error


async def plan_request(
    context: RequestContext,
    model: "Model",
    query: PlanQuery,
    document: Document,
) -> dict[str, Any]:
    """Return the answer of `POST /plan` as JSON values."""
    (requested,) = context.engines
    opened = await context.work.run(open_to_plan, model, requested, document)
    check_plannable(opened.sources, fetches=True)
    media = await resolve(context, opened.sources, PLAN_NEEDS)
    known = measure(context, opened, media)
    await ask_processor(context, opened, known)
    threads = context.prompts.for_size(document.text_size, len(media))
    return await threads.run(_finish, context, opened, query, media, known)


def open_to_plan(model: "Model", requested: RequestedEngine, document: Document) -> OpenedPlan:
    """Read a request to plan, or raise the problem `unplannable-prompt`."""
    require(requested.engine, "annotate")
    try:
        return open_plan(model, requested.engine, requested.version, document)
    except RequestError as error:
        raise unreadable(error) from error
    except (InputError, LimitError) as error:
        raise unplanned(error) from error


def _finish(
    context: RequestContext,
    opened: OpenedPlan,
    query: PlanQuery,
    media: Resolved,
    known: Mapping[MediaSource, Media],
) -> dict[str, Any]:
    (requested,) = context.engines
    options = complete(
        block_size=query.block_size,
        model_id=query.model_id,
        tenant=context.tenant_secret,
        **query.block_options,
    )
    plan = plan_opened(opened, known, options)
    items = [
        _item(planned, media[source], requested)
        for planned, source in zip(plan.items, opened.sources, strict=True)
    ]
    answer = plan.payload(items)
    if query.request:
        answer["request"] = msgspec.Raw(plan.annotated.write())
    return answer if requested.recipe is None else answer | {"recipe": requested.recipe}


def plan_opened(
    opened: OpenedPlan, known: Mapping[MediaSource, Media], options: PlanOptions
) -> Plan:
    """Return the plan of a request with its media, or raise a Problem with the reason."""
    try:
        return opened.plan(options, known)
    except (MMHashError, RecursionError) as error:
        raise unplanned(error) from error


def _item(
    planned: PlannedItem, resolved: ResolvedMedia, requested: RequestedEngine
) -> dict[str, Any]:
    """Return an item of the response: the item as in `/annotate`, and its place in the prompt."""
    fields = dict(planned.fields)
    if requested.recipe is not None:
        fields["recipe"] = requested.recipe
    return describe(resolved.item, {requested.name: fields}) | planned.payload()


def unplanned(error: Exception) -> Problem:
    """Return the problem for a request without a plan."""
    if isinstance(error, ProcessorError):
        return Problem("processor-unavailable")
    if not isinstance(error, UnplannedError):
        return Problem("unplannable-prompt")
    name = "invalid-url" if isinstance(error, UnreadableUrlError) else "unplannable-prompt"
    return Problem(name, [InvalidPart(str(error), pointer=error.pointer)])


def check_plannable(sources: Sequence[MediaSource], *, fetches: bool) -> None:
    """Raise `unplannable-item` for the first of the media whose size cannot be read."""
    for source in sources:
        if source.modality == "video" or (source.is_remote and source.modality == "audio"):
            raise Problem("unplannable-item", [InvalidPart(_UNREAD, pointer=source.pointer)])
        if source.is_remote and not fetches:
            reason = "images at URLs are planned only if they are fetched"
            raise Problem("unplannable-item", [InvalidPart(reason, pointer=source.pointer)])


def measure(
    context: RequestContext, opened: OpenedPlan, media: Resolved
) -> dict[MediaSource, Media]:
    """Return the media of a request, with the sizes that the engine sees."""
    (requested,) = context.engines
    found = {}
    for source in opened.sources:
        with naming(path=source.path):
            found[source] = _measured(requested, opened.model_type, media[source])
    return found


def questions_of(opened: OpenedPlan, known: Mapping[MediaSource, Media]) -> list[Question]:
    """Return the questions for the processor: none if the model knows the sizes."""
    if opened.model.files.model_processor is None or not known:
        return []
    try:
        return opened.questions(known)
    except MMHashError as error:
        raise unplanned(error) from error


async def ask_processor(
    context: RequestContext, opened: OpenedPlan, known: Mapping[MediaSource, Media]
) -> None:
    """Let the model's processor count the tokens of sizes that the memo does not have."""
    processor = opened.model.files.model_processor
    questions = questions_of(opened, known)
    if processor is not None and questions:
        await run_few([partial(_ask, context, processor, question) for question in questions])


async def _ask(context: RequestContext, processor: ModelProcessor, question: Question) -> None:
    threads = context.prompts.processors

    async def compute() -> bytes:
        return await threads.run(_ask_and_learn, processor, question)

    try:
        answer = await context.memo.expansion(processor.identity(), question, compute)
        if processor.known(question) is None:
            await threads.run(processor.learn, question, answer)
    except MMHashError as error:
        raise unplanned(error) from error


def _ask_and_learn(processor: ModelProcessor, question: Question) -> bytes:
    answer = processor.ask(question)
    processor.learn(question, answer)  # checks it: never store a malformed answer
    return answer


def _measured(requested: RequestedEngine, model_type: str, resolved: ResolvedMedia) -> Media:
    item = resolved.item
    is_of_file = item.kind == "bytes" and item.digest.algorithm == "blake3"
    digest = item.digest if is_of_file else None
    if resolved.samples is not None:
        return Media(MediaSize(samples=resolved.samples), item.key, file_digest=digest)
    if resolved.header is None:  # a video, or a clip at a URL
        raise Problem("unplannable-item", reason=_UNREAD)
    try:
        width, height = engine_size(
            resolved.header, requested.engine.name, requested.version, model_type=model_type
        )
    except InputError as error:
        raise Problem("unplannable-item", reason=str(error)) from error
    size = MediaSize(width=width, height=height)
    return Media(size, item.key, item.orientation, digest, resolved.engine_name)
