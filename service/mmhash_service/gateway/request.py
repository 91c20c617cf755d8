"""A request on its way to a worker, read once and planned for each engine of the fleet."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal, NamedTuple, ParamSpec, TypeVar

import msgspec
import numpy as np
from fastapi import Request

from mmhash import Digest
from mmhash.prompts import Plan
from mmhash.prompts.options import PlanOptions, complete
from mmhash.prompts.planner import Planner
from mmhash.requests import COUNTING_PATHS, PATHS, Document, MediaSource, ShortText
from mmhash.requests.raw_json import PARSE_ERRORS
from mmhash_service.gateway.expected import UnnamedBlocks, name_blocks
from mmhash_service.gateway.worker_spec import EngineSpec
from mmhash_service.guard.caller_hashes import (
    RequestRefusedError,
    check_form,
    strip_unverified_hashes,
)
from mmhash_service.items.context import RequestContext, Signer
from mmhash_service.limits.text import header_of
from mmhash_service.limits.threads import ThreadPool
from mmhash_service.models import Models
from mmhash_service.plan.media import Needs, Resolved, resolve
from mmhash_service.plan.request import Planning, open_document
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings

if TYPE_CHECKING:
    from mmhash.prompts import Model


P = ParamSpec("P")
T = TypeVar("T")

# The event loop decodes and hashes the base64 of bodies up to this length. A thread reads longer
# bodies.
_INLINE_MAX = 1 << 20

# Without its base64, the event loop reads a text up to this length, or a longer text with few
# values, because handing it to a thread would take longer.
_SHORT_MAX = 32 << 10
_LIGHT_MAX = 192 << 10
_LIGHT_SIGNS = 4096


class _ModelName(msgspec.Struct):
    model: str = ""


_MODEL_NAME = msgspec.json.Decoder(_ModelName)


def requested_model(body: bytes) -> str:
    """Return the model that a request names, or an empty string."""
    try:
        return _MODEL_NAME.decode(body).model
    except PARSE_ERRORS:
        return ""


class RoutedRequest:
    """A request without its caller's hashes. If it has a prompt, its document is open."""

    def __init__(
        self, text: bytes, document: Document | Problem | None = None, *, is_light: bool
    ) -> None:
        self.text = text
        self._document = document
        self.is_light = is_light
        """True if the event loop can read the request."""
        self.media: defaultdict[Needs, Resolved] = defaultdict(dict)
        """The media read so far, by what engines need of them."""

    async def run(
        self, work: ThreadPool, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function: on the event loop if the request is light, otherwise in a thread."""
        if self.is_light:
            return function(*args, **kwargs)
        return await work.run(function, *args, **kwargs)

    @property
    def document(self) -> Document:
        """The opened request. Raises a Problem if it cannot be read."""
        if self._document is None:
            raise Problem("unplannable-prompt")
        if isinstance(self._document, Problem):
            raise self._document
        return self._document

    async def model(self, work: ThreadPool) -> str:
        """Return the model that the request names, or an empty string."""
        if isinstance(self._document, Document):
            return self._document.model
        return await self.run(work, requested_model, self.text)

    async def resolve(
        self, context: RequestContext, sources: Sequence[MediaSource], needs: Needs
    ) -> Resolved:
        """Read the media of the request, once for all engines with these needs."""
        known = self.media[needs]
        known |= await resolve(context, [one for one in sources if one not in known], needs)
        return known


def body_limit(request: Request, settings: Settings) -> int:
    """Return the size limit of a body. Engines read a body without a content type as JSON too."""
    content_type = header_of(request.scope["headers"], b"content-type") or ""
    is_json = not content_type or "json" in content_type.lower()
    is_json |= request.scope["path"] in PATHS
    return settings.max_json_bytes if is_json else settings.max_body_bytes


def has_prompt(request: Request) -> bool:
    """Return True if an engine computes a prompt for this request."""
    path = request.scope["path"]
    return request.method == "POST" and path in PATHS and path not in COUNTING_PATHS


async def read_request(
    body: bytes, content_type: str, path: str | None, work: ThreadPool, *, is_prompt: bool
) -> RoutedRequest:
    """Read a request for a path. Without a path, guess the form from the members."""
    is_short = len(body) <= _INLINE_MAX
    short = ShortText(body) if is_short else await work.run(ShortText, body)
    light = is_short and is_light(short.text)
    read = partial(_read, short, content_type, path, is_prompt=is_prompt, light=light)
    return read() if light else await work.run(read)


def _read(
    short: ShortText, content_type: str, path: str | None, *, is_prompt: bool, light: bool
) -> RoutedRequest:
    try:
        check_form(short.whole, content_type)
        stripped = strip_unverified_hashes(
            short.text, lambda _tags: frozenset(), refuse=False, path=path
        )
    except RequestRefusedError as refused:
        raise Problem(str(refused), reason=refused.reason) from refused
    if stripped is not None:
        short = ShortText(short.restore(stripped))
    if not is_prompt:
        return RoutedRequest(short.whole, is_light=light)
    try:
        document: Document | Problem = open_document(short, path)
    except Problem as problem:  # the worker may still answer
        document = problem
    return RoutedRequest(short.whole, document, is_light=light)


def is_light(text: bytes) -> bool:
    """Return True if a text has so few values that searching and parsing it is fast."""
    if not _SHORT_MAX < len(text) <= _LIGHT_MAX:
        return len(text) <= _SHORT_MAX
    signs = np.frombuffer(text, np.uint8)  # faster than count()
    # Every member has a name in quotes, and every other value except the first follows a comma.
    return sum(int(np.count_nonzero(signs == sign)) for sign in b'",') <= _LIGHT_SIGNS


FindMatches = Callable[[Sequence[int], int], Mapping[str, int]]
"""Return how many leading tokens of a prompt each worker has, given the blocks and their size."""


class Naming(NamedTuple):
    """The engine and the adapter that determine the names of a request's blocks."""

    engine: EngineSpec
    hashes: Literal["engine", "key"] = "engine"
    lora: str | None = None
    lora_path: str | None = None


class Planned(NamedTuple):
    """A plan, and the request as planned."""

    plan: Plan
    text: bytes
    """The request with the hashes of its media, and their tags."""
    block_size: int
    unnamed: UnnamedBlocks
    matched: Mapping[str, int]


def named_model(models: Models, name: str) -> "Model | None":
    """Return the model that a request names, or None. If there is only one, return that."""
    return models.get(_single(models) or name)


def find_model(models: Models, name: str) -> "Model":
    """Return the model that a request names, or raise the problem `unknown-model`."""
    return models.find(_single(models) or name)


def _single(models: Models) -> str | None:
    names = models.names
    return names[0] if len(names) == 1 else None


async def plan_for_workers(
    context: RequestContext,
    model: "Model",
    naming: Naming,
    request: RoutedRequest,
    find_matches: FindMatches,
    *,
    fetches: bool,
) -> Planned:
    """Return the plan, or raise a Problem with the reason why there is none.

    Without fetching, the size of media at URLs is unknown. Matching runs in the thread that plans,
    because matching many blocks takes milliseconds.
    """
    signer = context.signer
    options, block_size = _plan_options(naming, context.tenant_secret, is_signed=signer is not None)

    def match(planner: Planner, plan: Plan, _media: Resolved) -> Planned:
        # An engine that names files itself gets no hash, so there is nothing to sign.
        if signer is not None and plan.items and naming.engine.server == "python":
            plan.annotated.set_tags(_tags(signer, plan, planner))
        matched = find_matches(plan.event_ids, block_size)
        unnamed = name_blocks(plan, block_size)
        return Planned(plan, plan.annotated.write(), block_size, unnamed, matched)

    return await Planning(
        context,
        model,
        request.document,
        options,
        match,
        fetches=fetches,
        is_light=request.is_light,
        media=request.media,
    ).run()


@lru_cache(256)  # engines, tenants and adapters are few
def _plan_options(
    naming: Naming, tenant: bytes | None, *, is_signed: bool
) -> tuple[PlanOptions, int]:
    """Return the options of plans, and the tokens of a block."""
    if naming.engine.server == "mmhash" and not (naming.engine.by_tenant and is_signed):
        tenant = None  # the plugin does not know the request's tenant
    options = complete(
        # Tags vouch for the hashes in a request.
        hashes="key" if is_signed else naming.hashes,
        tenant=tenant,
        lora=naming.lora,
        lora_path=naming.lora_path,
        **naming.engine.plan_options(),
    )
    return options, naming.engine.tokens_per_block


def _tags(signer: Signer, plan: Plan, planner: Planner) -> list[str]:
    """Return the tags of the hashes in a planned request."""
    if planner.request.content_prefix is None:
        names = [item.key for item in plan.items]
    else:
        inline = (source for source in planner.sources if not source.is_remote)
        names = [Digest("blake3", source.sha256()) for source in inline]
    return [signer.tag(name) for name in dict.fromkeys(names)]
