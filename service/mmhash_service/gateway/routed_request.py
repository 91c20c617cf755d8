"""A request on its way to a worker: read once, whatever engines the workers have.

Callers' hashes and peers are removed from it, and its media are hashed once.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ParamSpec, TypeVar

import numpy as np

from mmhash.requests import Document, MediaSource
from mmhash_service.gateway.served_models import requested_model
from mmhash_service.guard.caller_hashes import (
    RequestRefusedError,
    check_form,
    strip_unverified_hashes,
)
from mmhash_service.items.context import RequestContext
from mmhash_service.limits.thread_pool import ThreadPool
from mmhash_service.plan.media import Needs, Resolved, resolve
from mmhash_service.plan.request import open_document
from mmhash_service.problems.problem import Problem

P = ParamSpec("P")
T = TypeVar("T")

# A longer body is parsed in a thread, unless it is light.
_INLINE_MAX = 32 << 10

# A job in a thread takes longer than to search and parse such a body. The worst of this size has
# 4000 objects beside a hash.
_LIGHT_MAX = 192 << 10
_LIGHT_SIGNS = 4096

# A longer body without a document is searched for its model in a thread.
_SEARCHED_MAX = 256 << 10


class RoutedRequest:
    """A request without callers' hashes, opened if it has a prompt."""

    def __init__(self, text: bytes, document: Document | Problem | None = None) -> None:
        self.text = text
        self._document = document
        self.media: defaultdict[Needs, Resolved] = defaultdict(dict)
        """The media that have been read, for each of the needs."""

    @cached_property
    def is_light(self) -> bool:
        """True if the event loop can read the request."""
        return len(self.text) <= _INLINE_MAX or is_light(self.text)

    async def run(
        self, work: ThreadPool, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of the request: on the event loop if it is light, or in a thread."""
        if self.is_light:
            return function(*args, **kwargs)
        return await work.run(function, *args, **kwargs)

    @property
    def document(self) -> Document:
        """The opened request; a Problem says why it cannot be read."""
        if self._document is None:
            raise Problem("unplannable-prompt")
        if isinstance(self._document, Problem):
            raise self._document
        return self._document

    async def model(self, work: ThreadPool) -> str:
        """Return the model that the request names, or an empty string."""
        if isinstance(self._document, Document):
            return self._document.model
        if len(self.text) <= _SEARCHED_MAX:
            return requested_model(self.text)
        return await work.run(requested_model, self.text)

    async def resolve(
        self, context: RequestContext, sources: Sequence[MediaSource], needs: Needs
    ) -> Resolved:
        """Return media of the request, read once for all engines with these needs."""
        known = self.media[needs]
        known |= await resolve(context, [one for one in sources if one not in known], needs)
        return known


async def read_request(
    body: bytes, content_type: str, path: str | None, work: ThreadPool, *, is_prompt: bool
) -> RoutedRequest:
    """Return a request for a path; one without a path has the form that its members show."""
    if len(body) <= _INLINE_MAX or is_light(body):
        return _read(body, content_type, path, is_prompt=is_prompt)
    return await work.run(_read, body, content_type, path, is_prompt=is_prompt)


def _read(body: bytes, content_type: str, path: str | None, *, is_prompt: bool) -> RoutedRequest:
    try:
        check_form(body, content_type)
        pieces = strip_unverified_hashes(body, lambda _tags: frozenset(), refuse=False)
    except RequestRefusedError as refused:
        raise Problem(str(refused)) from refused
    text = body if pieces is None else b"".join(pieces)
    if not is_prompt:
        return RoutedRequest(text)
    try:
        return RoutedRequest(text, open_document(text, path))
    except Problem as problem:  # the worker may well answer it
        return RoutedRequest(text, problem)


def is_light(body: bytes) -> bool:
    """Return True if a body is searched and parsed in a few milliseconds: it has few values."""
    if not _LIGHT_SIGNS < len(body) <= _LIGHT_MAX:
        return len(body) <= _LIGHT_SIGNS
    signs = np.frombuffer(body, np.uint8)  # faster than count()
    # Each member has a name in quotes, and each other value but the first a comma before it.
    return sum(int(np.count_nonzero(signs == sign)) for sign in b'",') <= _LIGHT_SIGNS
