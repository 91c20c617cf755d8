"""Refuse requests that repeat a header which may occur only once."""

from starlette.types import ASGIApp, Receive, Scope, Send

from mmhash_service.http.problem_responses import problem_response
from mmhash_service.limits.headers import has_duplicates


class DuplicateHeaderMiddleware:
    """Refuses requests with duplicate headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it before any header is used."""
        if scope["type"] == "http" and has_duplicates(scope["headers"]):
            await problem_response("duplicate-header")(scope, receive, send)
        else:
            await self._app(scope, receive, send)
