"""A span for each request, if tracing is configured."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmhash_service.http.access_log import POLLED
from mmhash_service.telemetry import tracing


class TracingMiddleware:
    """Records requests other than probes. Paths other than `paths` are reported as `other`."""

    def __init__(self, app: ASGIApp, paths: frozenset[str]) -> None:
        self._app = app
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["path"] in POLLED:
            await self._app(scope, receive, send)
            return

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                tracing.note_status(message["status"])
            await send(message)

        route = scope["path"] if scope["path"] in self._paths else "other"
        with tracing.request_span(scope["method"], route, scope["headers"]):
            await self._app(scope, receive, send_and_note)
