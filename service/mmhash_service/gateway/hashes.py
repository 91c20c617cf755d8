"""Requests on their way to an engine: callers' hashes out, the gateway's own in."""

from functools import cache

import numpy as np
from fastapi import Request

from mmhash_service.annotate.request import AnnotatedItem, FindModel, annotate
from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas.items import HashQuery
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.guard.caller_hashes import RefusedError, check_form, strip_unverified_hashes
from mmhash_service.items.context import RequestContext, build_context
from mmhash_service.resources import Resources
from mmhash_service.runtime.capacity import Admission
from mmhash_service.runtime.worker_pool import WorkerPool

# A longer body is parsed in a thread, unless it is light.
_INLINE_MAX = 32 << 10

# With one image of 100 kB and some text it takes 0.1 ms to search and 0.1 to parse, and a job in a
# thread 0.4 ms of the core. The worst of this size takes 2 ms: 4000 objects beside a hash.
_LIGHT_MAX = 192 << 10
_LIGHT_SIGNS = 4096

# The beginnings of the names of members that hold media. A request without any has no slot for a
# hash; one that spells them with escapes gets none, and the engine hashes its media itself.
_MEDIA_NAMES = (b'"image', b'"video', b'"audio', b'"input_audio')


async def without_callers_hashes(body: bytes, content_type: str, work: WorkerPool) -> bytes:
    """Return a body without hashes and peers that its caller named."""
    if len(body) <= _INLINE_MAX or is_light(body):
        return _strip(body, content_type)
    return await work.run(_strip, body, content_type)


def is_light(body: bytes) -> bool:
    """Return True if a body is searched and parsed in a few milliseconds: it has few values."""
    if not _LIGHT_SIGNS < len(body) <= _LIGHT_MAX:
        return len(body) <= _LIGHT_SIGNS
    signs = np.frombuffer(body, np.uint8)  # 10 µs for each sign and 100 kB; count() takes 40
    # Each member has a name in quotes, and each other value but the first a comma before it.
    return sum(int(np.count_nonzero(signs == sign)) for sign in b'",') <= _LIGHT_SIGNS


def _strip(body: bytes, content_type: str) -> bytes:
    try:
        check_form(body, content_type)
        pieces = strip_unverified_hashes(body, lambda _tags: frozenset(), refuse=False)
    except RefusedError as refused:
        raise Problem(str(refused)) from refused
    return body if pieces is None else b"".join(pieces)


async def may_have_media(body: bytes, work: WorkerPool) -> bool:
    """Return True if a request has a member that may hold images, videos or audio."""
    if len(body) <= _INLINE_MAX:
        return _names_media(body)
    return await work.run(_names_media, body)


def _names_media(body: bytes) -> bool:
    return any(name in body for name in _MEDIA_NAMES)


def build_own_context(request: Request, engine: str, admission: Admission) -> RequestContext:
    """Build the context in which the gateway hashes a request's media for an engine."""
    sign = bool(Resources.of(request).settings.tag_secrets)
    return build_context(request, _hash_query(engine, sign), admission)


@cache  # 20 µs each; engines are those of the settings
def _hash_query(engine: str, sign: bool) -> HashQuery:
    return HashQuery(engines=engine, sign=sign)


async def with_own_hashes(
    context: RequestContext, body: bytes, find_model: FindModel, settings: GatewaySettings
) -> tuple[bytes, list[AnnotatedItem]]:
    """Return the request with a hash for each of its media, as the engine takes it; the items."""
    return await annotate(context, body, find_model, settings.media_urls)
