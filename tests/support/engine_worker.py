"""A small engine in its own process: it speaks HTTP like vLLM and SGLang, but has no model.

python -m tests.support.engine_worker NAME PORT

It echoes every request, so a test sees what reached it. A body's member `mode` asks for a fault, and
`seconds` for a slow response. MMHASH_PLUGIN names the features of the plugin that it claims to have.
"""

import asyncio
import json
import os
import signal
import sys
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send

# Pieces of a stream that a proxy must not parse: split events, comments, bytes beyond UTF-8.
STREAM = (
    b'data: {"choices": [{"delta": {"content": "a"}}]}\n\nda',
    b"ta: {}\r\n\r\n: a comment\n\n",
    b"data: \xff\xfe\n\n",
    b"data: [DONE]\n\n",
)

# The gateway asks for these by itself, as it does for /health.
_PROBES = {"/v1/models", "/version", "/server_info", "/get_server_info"}


class Engine:
    """The application."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.aborted = 0
        self.seen: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        body = await _read(receive)
        try:
            asked = json.loads(body)
        except ValueError:
            asked = {}
        asked = asked if isinstance(asked, dict) else {}
        mode = asked.get("mode", "")
        if scope["path"] == "/health":
            await self._reply(send, 200, b"")
        elif scope["path"] in {"/mmhash", "/state"}:
            await self._reply(send, *self._facts(scope["path"]))
        elif mode == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif mode in {"hang", f"hang at {self.name}"}:
            await self._hang(receive)
        elif asked.get("stream"):
            await self._stream(receive, send, mode)
        else:
            await asyncio.sleep(asked.get("seconds", 0))
            if scope["path"] not in _PROBES:
                self.seen.append(scope["path"])
            await self._reply(send, asked.get("status", 200), self._echo(scope, body))

    def _facts(self, path: str) -> tuple[int, bytes]:
        if path == "/state":
            return 200, json.dumps({"aborted": self.aborted, "seen": self.seen}).encode()
        features = os.environ.get("MMHASH_PLUGIN", "")
        facts = {"version": "1", "features": features.split(",")}
        return 200 if features else 404, json.dumps(facts).encode()

    def _echo(self, scope: Scope, body: bytes) -> bytes:
        headers = [(name.decode(), value.decode()) for name, value in scope["headers"]]
        echo: dict[str, Any] = {
            "worker": self.name,
            "method": scope["method"],
            "path": scope["raw_path"].decode(),
            "query": scope["query_string"].decode(),
            "headers": headers,
            "body": body.decode("latin-1"),
        }
        return json.dumps(echo).encode()

    async def _reply(self, send: Send, status: int, content: bytes) -> None:
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"x-worker", self.name.encode()),
            (b"connection", b"x-of-one-hop"),
            (b"x-of-one-hop", b"1"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _hang(self, receive: Receive) -> None:
        self.seen.append("hang")
        while (await receive())["type"] != "http.disconnect":
            pass
        self.aborted += 1

    async def _stream(self, receive: Receive, send: Send, mode: str) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-worker", self.name.encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if mode == "die-before-token":
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == "hang-before-token":
            await self._hang(receive)
            return
        for piece in STREAM[:2] if mode else STREAM:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0.01)
        if mode == "die-in-stream":
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == "hang-in-stream":
            await self._hang(receive)
            return
        await send({"type": "http.response.body", "body": b""})


async def _live(receive: Receive, send: Send) -> None:
    """Answer the messages of the application's lifespan."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


if __name__ == "__main__":
    _, name, port = sys.argv
    # Real engines close idle connections, too.
    uvicorn.run(Engine(name), port=int(port), log_level="warning", ws="none", timeout_keep_alive=5)
