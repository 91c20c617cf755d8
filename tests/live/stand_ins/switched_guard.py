"""The guard as middleware, for requests that have the header `x-live-guard`.

One server is then attacked with and without the guard. Its secrets come from the environment.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from mmhash_service.guard import Guard


class SwitchedGuard:
    """Sends a request through the guard if its header asks for it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._guard = app, Guard(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_guarded = (b"x-live-guard", b"on") in scope.get("headers", [])
        await (self._guard if is_guarded else self._app)(scope, receive, send)
