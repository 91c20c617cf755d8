"""The guard as middleware, but only for requests with the header `x-live-guard`.

So tests can attack one server with and without the guard. The environment has the guard's secrets.
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
