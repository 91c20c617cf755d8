"""Responses that count against a limit until the client has read them."""

from fastapi import Response
from starlette.types import Receive, Scope, Send

from mmhash_service.limits.capacity import Limits

# Shorter responses do not count: the number of connections limits them. The transport holds at most
# two pieces of a longer response.
_PIECE = 256 << 10


class LongResponse(Response):
    """A JSON response. A long one is sent piece by piece."""

    def __init__(self, payload: bytes | str, limits: Limits) -> None:
        super().__init__(payload, media_type="application/json")
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response. Each piece waits until the client has read the piece before it."""
        if len(self.body) <= _PIECE:
            await super().__call__(scope, receive, send)
            return
        with self._limits.reserve_response(len(self.body)):
            head = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **head})
            body = memoryview(self.body)
            for start in range(0, len(body), _PIECE):
                piece = bytes(body[start : start + _PIECE])
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
