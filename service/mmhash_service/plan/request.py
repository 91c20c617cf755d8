"""Plan a request: read and measure its media, ask the model's processor, compute the plan."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from mmhash.errors import InputError, LimitError, MMHashError
from mmhash.prompts import Media, MediaSize, Plan, PlannedItem
from mmhash.prompts.options import PlanOptions, complete
from mmhash.prompts.planner import Planner
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
from mmhash_service.plan.media import (
    Found,
    Needs,
    Resolved,
    ResolvedMedia,
    read_inline,
    read_rest,
    recall_inline,
    resolved_only,
)
from mmhash_service.plan.schema import PlanQuery
from mmhash_service.problems.problem import InvalidPart, Problem, naming

if TYPE_CHECKING:
    from mmhash.prompts import Model

T = TypeVar("T")

_UNREAD = "a video has a plan only if it is sent as data:video/jpeg;base64,<frame>,<frame>"

# Planning a shorter text takes less time than handing it to a thread. An unknown expression in a
# tokenizer can take minutes, so its model's requests always go to a thread.
_SHORT_TEXT = 4 << 10


def open_document(text: bytes | ShortText, path: str | None) -> Document:
    """Open the body of a request for a path."""
    short = text if isinstance(text, ShortText) else ShortText(text)
    refuse_many_values(short.text)
    try:
        return Document(short, form_of_path(path))
    except RequestError as error:
        raise unreadable(error) from error


async def plan_request(
    context: RequestContext, model: "Model", query: PlanQuery, document: Document
) -> dict[str, Any]:
    """Return the response of `POST /plan` as JSON values."""
    (requested,) = context.engines
    options = complete(
        block_size=query.block_size,
        model_id=query.model_id,
        tenant=context.tenant_secret,
        **query.block_options,
    )

    def describe_plan(planner: Planner, plan: Plan, media: Resolved) -> dict[str, Any]:
        answer = plan.payload(
            [
                _describe_item(planned, media[source], requested)
                for planned, source in zip(plan.items, planner.sources, strict=True)
            ]
        )
        if query.request:
            answer["request"] = msgspec.Raw(plan.annotated.write())
        return answer

    return await Planning(context, model, document, options, describe_plan, fetches=True).run()


def _describe_item(
    planned: PlannedItem, resolved: ResolvedMedia, requested: RequestedEngine
) -> dict[str, Any]:
    """Return an item of the response: the item as in `/annotate`, and its place in the prompt."""
    return describe(resolved.item, {requested.name: planned.fields}) | planned.payload()


class Planning(Generic[T]):
    """Plans a request for the engine of its context.

    `finish` turns the plan into the result. It runs in the thread that planned, because using a
    long plan takes milliseconds too. Without `fetches`, a request with images at URLs has no plan.
    The event loop reads a light request, and plans it if it is short. `media` holds what was
    already read for other engines.
    """

    _planner: Planner
    _needs: Needs
    _media: Resolved

    def __init__(
        self,
        context: RequestContext,
        model: "Model",
        document: Document,
        options: PlanOptions,
        finish: Callable[[Planner, Plan, Resolved], T],
        *,
        fetches: bool,
        is_light: bool = False,
        media: defaultdict[Needs, Resolved] | None = None,
    ) -> None:
        self._context, self._model, self._document = context, model, document
        self._options, self._finish, self._fetches = options, finish, fetches
        self._is_light = is_light and model.files.encoder.has_known_expressions
        self._known: defaultdict[Needs, Resolved] = defaultdict(dict) if media is None else media

    async def run(self) -> T:
        """Return the result of `finish`. Raise a Problem if the request has no plan."""
        context = self._context
        if self._is_light:
            self._open()
            planned = self._plan_recalled()
            if planned is not None:
                return planned
            found, planned = await context.prompts.short.run(self._begin)
        else:
            found, planned = await context.prompts.short.run(self._open_and_begin)
        if planned is not None:
            return planned
        self._media |= await read_rest(context, found, self._needs)
        measured = self._measure()
        await self._ask_processor(measured)
        threads = context.prompts.for_size(self._document.text_size, len(self._planner.sources))
        return await threads.run(self._plan, measured)

    def _open(self) -> None:
        """Read the request for its engine."""
        (requested,) = self._context.engines
        require(requested.engine, "annotate")
        try:
            self._planner = self._model.open_planner(
                requested.engine, requested.version, self._document, self._options
            )
        except RequestError as error:
            raise unreadable(error) from error
        except (InputError, LimitError) as error:
            raise _unplanned(error) from error
        _check_plannable(self._planner.sources, fetches=self._fetches)
        self._needs = Needs(sizes=True, naming=self._planner.naming)
        self._media = self._known[self._needs]

    def _plan_recalled(self) -> T | None:
        """Plan a short request whose media the memo remembers."""
        if self._document.text_size > _SHORT_TEXT:
            return None
        recalled = recall_inline(self._context, self._planner.sources, self._needs)
        if recalled is None:
            return None
        self._media |= recalled
        measured = self._measure()
        return None if self._questions(measured) else self._plan(measured)

    def _open_and_begin(self) -> tuple[Found, T | None]:
        self._open()
        return self._begin()

    def _begin(self) -> tuple[Found, T | None]:
        """Read the media in the request. Plan the request unless it is long or lacks something."""
        context, sources = self._context, self._planner.sources
        missing = [source for source in sources if source not in self._media]
        found = read_inline(context, missing, self._needs)
        self._media |= resolved_only(found)
        if all(one in self._media for one in sources):
            measured = self._measure()
            if not self._questions(measured) and self._is_short(measured):
                return found, self._plan(measured)
        return found, None

    def _is_short(self, measured: Mapping[MediaSource, Media]) -> bool:
        """Return True if the prompt is short. Many media count by their tokens."""
        prompts, nbytes = self._context.prompts, self._document.text_size
        if prompts.for_size(nbytes, len(self._planner.sources)) is prompts.short:
            return True
        try:
            tokens = self._planner.count_media_tokens(measured)
        except MMHashError as error:
            raise _unplanned(error) from error
        return prompts.for_size(nbytes + tokens) is prompts.short

    def _measure(self) -> dict[MediaSource, Media]:
        """Return the media of the request, with the sizes that the engine sees."""
        measured = {}
        for source in self._planner.sources:
            with naming(path=source.path):
                measured[source] = _measured(self._planner, self._media[source])
        return measured

    def _questions(self, measured: Mapping[MediaSource, Media]) -> list[Question]:
        """Return the questions that the model's processor must answer first."""
        if not measured:
            return []
        try:
            return self._planner.questions(measured)
        except MMHashError as error:
            raise _unplanned(error) from error

    async def _ask_processor(self, measured: Mapping[MediaSource, Media]) -> None:
        """Ask the model's processor about sizes whose answers are not in the memo."""
        processor = self._model.files.model_processor
        questions = self._questions(measured)
        if questions:
            await run_few([partial(_ask, self._context, processor, one) for one in questions])

    def _plan(self, measured: Mapping[MediaSource, Media]) -> T:
        try:
            plan = self._planner.plan(measured)
        except (MMHashError, RecursionError) as error:
            raise _unplanned(error) from error
        return self._finish(self._planner, plan, self._media)


def _check_plannable(sources: Sequence[MediaSource], *, fetches: bool) -> None:
    """Raise `unplannable-item` for the first medium whose size cannot be read."""
    for source in sources:
        if source.modality == "video" and not source.is_frames:
            raise Problem("unplannable-item", [InvalidPart(_UNREAD, pointer=source.pointer)])
        if source.is_remote and not fetches:
            reason = "the size of media at a URL is unknown: list its host in url_hosts"
            raise Problem("unplannable-item", [InvalidPart(reason, pointer=source.pointer)])


def _measured(planner: Planner, resolved: ResolvedMedia) -> Media:
    item = resolved.item
    is_of_file = item.kind == "bytes" and item.digest.algorithm == "blake3"
    digest = item.digest if is_of_file else None
    if resolved.samples is not None:
        return Media(MediaSize(samples=resolved.samples), item.key, file_digest=digest)
    if resolved.header is None:
        raise Problem("unplannable-item", reason=_UNREAD)
    try:
        if resolved.frames is None:
            size = planner.size_of(resolved.header)
        else:
            size = planner.size_of_frames(resolved.header, resolved.frames)
    except InputError as error:
        raise Problem("unplannable-item", reason=str(error)) from error
    return Media(size, item.key, item.orientation, digest, resolved.engine_name)


def _unplanned(error: Exception) -> Problem:
    """Return the problem for a request without a plan."""
    if isinstance(error, ProcessorError):
        return Problem("processor-unavailable")
    if not isinstance(error, UnplannedError):
        return Problem("unplannable-prompt")
    name = "invalid-url" if isinstance(error, UnreadableUrlError) else "unplannable-prompt"
    return Problem(name, [InvalidPart(str(error), pointer=error.pointer)])


async def _ask(context: RequestContext, processor: ModelProcessor, question: Question) -> None:
    threads = context.prompts.processors

    async def compute() -> bytes:
        return await threads.run(_ask_and_learn, processor, question)

    try:
        answer = await context.memo.expansion(processor.identity(), question, compute)
        if processor.known(question) is None:
            await threads.run(processor.learn, question, answer)
    except MMHashError as error:
        raise _unplanned(error) from error


def _ask_and_learn(processor: ModelProcessor, question: Question) -> bytes:
    answer = processor.ask(question)
    processor.learn(question, answer)  # this checks the answer: never store a malformed one
    return answer
