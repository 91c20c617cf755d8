"""The metrics port: `/metrics` without an API key, and nothing else."""

from starlette.types import ASGIApp, Receive, Scope, Send

from mmhash_service.endpoints import probes
from mmhash_service.http.problem_responses import problem_response


class MetricsPortMiddleware:
    """Answers the requests that arrive at the metrics port."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request at the metrics port, or pass it on."""
        # The port of the connection, which no header of a request changes.
        if scope["type"] != "http" or scope["server"][1] != self._port:
            await self._app(scope, receive, send)
        elif scope["path"] != "/metrics":
            await problem_response("not-found")(scope, receive, send)
        elif scope["method"] not in {"GET", "HEAD"}:
            await problem_response("method-not-allowed")(scope, receive, send)
        else:
            response = await probes.metrics()
            await response(scope, receive, send)
