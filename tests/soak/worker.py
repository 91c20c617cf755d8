"""An engine's HTTP and KV events without a model, with faults that the soak asks for.

python -m tests.soak.worker PORT EVENTS_PORT REPLAY_PORT

A reply is a function of the request, so that the load can tell a wrong one.
"""

import asyncio
import json
import sys
from collections import deque
from itertools import count
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.kv_publisher import Publisher, removed, stored

EVENTS = 8
_PAUSE_S = 0.01
# Blocks that the worker's cache holds; a request stores some, and the oldest are removed.
_CACHE = 2000
_STORED = 10


def expected(body: dict[str, Any], uuids: list[str | None]) -> list[str]:
    """Return the pieces of the reply to a request whose images have these uuids."""
    text = body["messages"][-1]["content"][-1]["text"]
    return [f"{text[-8:]}.{number}.{uuids}" for number in range(EVENTS)]


def _uuids(body: dict[str, Any]) -> list[str | None]:
    parts = [part for message in body["messages"] for part in message["content"]]
    return [part.get("uuid") for part in parts if part["type"] == "image_url"]


class Worker:
    """The application's state."""

    def __init__(self, port: int, events: int, replay: int) -> None:
        self.port = port
        self.publisher = Publisher(events, replay, topic=b"kv")
        self.is_losing_events = False
        self._held: deque[int] = deque()
        self._ids = count(1)

    async def chat(self, request: Request) -> Response:
        """Answer as the engine does, streamed or not."""
        body = await request.json()
        pieces = expected(body, _uuids(body))
        self._publish()
        if not body.get("stream"):
            await asyncio.sleep(_PAUSE_S)
            return JSONResponse({"choices": [{"message": {"content": "".join(pieces)}}]})

        async def stream() -> Any:
            for piece in pieces:
                event = json.dumps({"choices": [{"delta": {"content": piece}}]})
                yield f"data: {event}\n\n"
                await asyncio.sleep(_PAUSE_S)
            yield "data: [DONE]\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    def _publish(self) -> None:
        ids = [next(self._ids) << 16 | self.port for _ in range(_STORED)]
        self._held += ids
        events = [stored(*ids, size=16)]
        if len(self._held) > _CACHE:
            events.append(removed(*(self._held.popleft() for _ in range(_STORED))))
        self.publisher.publish(*events, is_lost=self.is_losing_events)

    async def fault(self, request: Request) -> Response:
        """Begin or end a fault."""
        asked = await request.json()
        self.is_losing_events = asked.get("lose", self.is_losing_events)
        self.publisher.answers = not asked.get("refuse", not self.publisher.answers)
        return Response()

    async def health(self, _request: Request) -> Response:
        """Answer a probe."""
        return Response()

    async def models(self, _request: Request) -> Response:
        """Answer the list of models."""
        return JSONResponse({"object": "list", "data": [{"id": "tiny", "object": "model"}]})


def main() -> None:
    """Serve until killed."""
    port, events, replay = map(int, sys.argv[1:])
    worker = Worker(port, events, replay)
    routes = [
        Route("/v1/chat/completions", worker.chat, methods=["POST"]),
        Route("/fault", worker.fault, methods=["POST"]),
        Route("/health", worker.health),
        Route("/v1/models", worker.models),
    ]
    uvicorn.run(Starlette(routes=routes), port=port, log_level="warning", ws="none")


if __name__ == "__main__":
    main()
