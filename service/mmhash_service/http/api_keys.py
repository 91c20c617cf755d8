"""API keys: only their digests are stored, and comparisons take constant time."""

from collections.abc import Collection
from hmac import compare_digest

from blake3 import blake3
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from mmhash_service.http.problem_responses import problem_response
from mmhash_service.resources import Resources

# Health checks need no key.
PROBES = frozenset({"/live", "/ready", "/health"})

_SCHEME = "Bearer "


class ApiKeyMiddleware:
    """Refuses requests without a valid key, except those of probes and pages."""

    def __init__(self, app: ASGIApp, pages: Collection[str] = frozenset()) -> None:
        self._app = app
        # A page asks its user for a key.
        self._open_paths = PROBES | frozenset(pages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it before its body is read."""
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            text = Headers(scope=scope).get("authorization", "")
            # Those of the settings now: a reload replaces them.
            digests = Resources.of_app(scope["app"]).settings.api_key_digests
            if not (text.startswith(_SCHEME) and _is_valid(text.removeprefix(_SCHEME), digests)):
                await problem_response("unauthorized")(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_valid(key: str, digests: tuple[str, ...]) -> bool:
    actual = blake3(key.encode("latin-1")).hexdigest()  # the bytes of the header
    # No early exit: the time must not reveal which digest matched.
    return sum(compare_digest(actual, digest) for digest in digests) > 0
