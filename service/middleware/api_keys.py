"""API keys: of each only the digest is known, and all are compared in constant time."""

from hmac import compare_digest

from blake3 import blake3
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from mmhash_service.api.problem_handlers import problem_response
from mmhash_service.routes import page

# Whoever watches over the process needs no key, and the page asks a person for his.
OPEN_PATHS = frozenset({"/live", "/ready", "/health"}) | page.FILES.keys()

_SCHEME = "Bearer "


class ApiKeyMiddleware:
    """Answers a call that has no good key, and passes on the others."""

    def __init__(self, app: ASGIApp, digests: tuple[str, ...]) -> None:
        self._app = app
        self._digests = digests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a call, or refuse it before its body is read."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            text = Headers(scope=scope).get("authorization", "")
            if not (text.startswith(_SCHEME) and self._knows(text.removeprefix(_SCHEME))):
                await problem_response("unauthorized")(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _knows(self, key: str) -> bool:
        asked = blake3(key.encode("latin-1")).hexdigest()  # the header's own bytes
        # No early end: how long it takes does not say which key was close.
        return sum(compare_digest(asked, digest) for digest in self._digests) > 0
