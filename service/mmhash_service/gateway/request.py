"""A request on its way to a worker, read once for all engines of the fleet."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import ParamSpec, TypeVar

import msgspec
import numpy as np
from fastapi import Request

from mmhash.requests import COUNTING_PATHS, PATHS, Document, MediaSource, ShortText
from mmhash.requests.raw_json import PARSE_ERRORS
from mmhash_service.guard.caller_hashes import check_form, strip_unverified_hashes
from mmhash_service.items.context import RequestContext
from mmhash_service.limits.capacity import STREAM_BYTES
from mmhash_service.limits.text import header_of
from mmhash_service.limits.threads import ThreadPool
from mmhash_service.plan.media import Needs, Resolved, resolve
from mmhash_service.plan.request import open_document
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings

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


COPIES = 3
"""A body is held three times: as received, without callers' hashes, and with the gateway's."""


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
    """Return the size limit of a body. Engines read a body without a content type as JSON too.

    Refuse a body for which there will never be room. With `busy`, its client would try again.
    """
    content_type = header_of(request.scope["headers"], b"content-type") or ""
    is_json = not content_type or "json" in content_type.lower()
    is_json |= request.scope["path"] in PATHS
    if is_json:
        return settings.max_json_bytes
    return min(settings.max_body_bytes, (settings.max_held_bytes - STREAM_BYTES) // COPIES)


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
    check_form(short.whole, content_type)
    stripped = strip_unverified_hashes(short.text, lambda _tags: frozenset(), path=path)
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
