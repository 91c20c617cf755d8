"""The guard in front of an engine that notes what it receives, without a server."""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from mmhash_service.guard import Guard

Header = tuple[bytes, bytes]


class Forwarded(NamedTuple):
    """The status of the response, 200 from the engine, and the request that the engine received."""

    status: int
    body: bytes
    headers: list[Header]


def through_guard(body: bytes, headers: Iterable[Header] = (), **settings: Any) -> Forwarded:
    """Send a request through a guard with these settings."""
    pieces: list[bytes] = []
    received: list[Header] = []
    sent: list[dict[str, Any]] = []

    async def engine(scope: Any, receive: Any, send: Any) -> None:
        received.extend(scope["headers"])
        more = True
        while more:
            message = await receive()
            pieces.append(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": list(headers)}
    asyncio.run(Guard(engine, **settings)(scope, receive, send))
    return Forwarded(sent[0]["status"], b"".join(pieces), received)
