"""Refuse a request in which a header that takes one value is there twice."""

from starlette.types import ASGIApp, Receive, Scope, Send

from mmhash_service.api.headers import has_duplicates
from mmhash_service.api.problem_handlers import problem_response


class RefuseDuplicates:
    """Answers a request with such headers, and passes on the others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request, or refuse it before any header is believed."""
        if scope["type"] == "http" and has_duplicates(scope["headers"]):
            await problem_response("duplicate-header")(scope, receive, send)
        else:
            await self._app(scope, receive, send)
