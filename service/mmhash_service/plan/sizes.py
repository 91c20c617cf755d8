"""Measure a request's items, and ask the model's own processor for their tokens."""

from collections.abc import Mapping
from functools import partial

from mmhash.errors import InputError, MMHashError
from mmhash.prompts import Media, MediaSize
from mmhash.prompts.headers import engine_size
from mmhash.prompts.planning import OpenedPlan
from mmhash.prompts.processor.client import ModelProcessor, ProcessorError
from mmhash.prompts.processor.messages import Question
from mmhash.requests import MediaSource, UnplannedError
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import RequestedEngine
from mmhash_service.limits.threads import run_few
from mmhash_service.plan.media import Resolved, ResolvedMedia
from mmhash_service.problems.problem import InvalidPart, Problem, naming


def unplanned(error: Exception) -> Problem:
    """Return the problem of a request that has no plan."""
    if isinstance(error, ProcessorError):
        return Problem("processor-unavailable")
    if not isinstance(error, UnplannedError):
        return Problem("unplannable-prompt")
    return Problem("unplannable-prompt", [InvalidPart(str(error), pointer=error.pointer)])


def measure(
    context: RequestContext, opened: OpenedPlan, media: Resolved
) -> dict[MediaSource, Media]:
    """Return the media of a request, with the sizes that the engine sees."""
    (requested,) = context.engines
    found = {}
    for source in opened.sources:
        with naming(pointer=source.pointer):
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
    if resolved.header is None:  # a video or an audio clip
        raise Problem("unplannable-item", reason="only the sizes of images are read")
    try:
        width, height = engine_size(
            resolved.header, requested.engine.name, requested.version, model_type=model_type
        )
    except InputError as error:
        raise Problem("unplannable-item", reason=str(error)) from error
    item = resolved.item
    size = MediaSize(width=width, height=height)
    is_of_file = item.kind == "bytes" and item.digest.algorithm == "blake3"
    digest = item.digest if is_of_file else None
    return Media(size, item.key, item.orientation, digest, resolved.engine_name)
