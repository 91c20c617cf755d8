"""The guard, without a server, in front of an engine that records what it receives."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from mmhash_service.guard import Guard

Header = tuple[bytes, bytes]


class Forwarded(NamedTuple):
    """The status of the response, 200 from the engine, and the request that the engine received."""

    status: int
    body: bytes
    headers: list[Header]
    answer: bytes

    @property
    def request(self) -> Any:
        """The JSON that the engine received."""
        assert self.status == 200, self.answer
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        """The name of the problem by which the guard refused the request."""
        assert not self.headers, "the request reached the engine"
        problem = json.loads(self.answer)
        assert problem["status"] == self.status
        return str(problem["type"]).removeprefix("urn:mmhash:problem:")

    @property
    def reason(self) -> str:
        """What the guard says of a request that it refused."""
        return str(json.loads(self.answer)["reason"])


def through_guard(
    body: bytes | list[bytes],
    headers: Iterable[Header] = (),
    *,
    method: str = "POST",
    **settings: Any,
) -> Forwarded:
    """Send a request, whole or in pieces, through a guard with these settings."""
    pieces = body if isinstance(body, list) else [body]
    waiting = [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces)}
        for number, piece in enumerate(pieces, 1)
    ]
    read: list[bytes] = []
    received: list[Header] = []
    sent: list[dict[str, Any]] = []

    async def engine(scope: Any, receive: Any, send: Any) -> None:
        received.extend(scope["headers"])
        more = True
        while more:
            message = await receive()
            read.append(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[str, Any]:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": "/", "headers": list(headers)}
    asyncio.run(Guard(engine, **settings)(scope, receive, send))
    answer = b"".join(message.get("body", b"") for message in sent)
    return Forwarded(sent[0]["status"], b"".join(read), received, answer)
