"""An upstream that streams events, and the plain proxy that bench/gateway.py compares with.

python -m bench.support.proxies upstream PORT
python -m bench.support.proxies answers PORT
python -m bench.support.proxies plain PORT URL
"""

import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

EVENTS = 20
_EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "token"}}]}\n\n'


async def _events(request: Request) -> Response:
    await request.body()

    async def events() -> AsyncIterator[bytes]:
        for _ in range(EVENTS):
            yield _EVENT

    return StreamingResponse(events(), media_type="text/event-stream")


_MODELS = b'{"object": "list", "data": [{"id": "tiny", "root": "tiny"}]}'


async def answers(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer each request at once with a list of models, which some routers ask for."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_MODELS))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": _MODELS})


async def _health(_request: Request) -> Response:
    return Response()


async def _models(_request: Request) -> Response:
    return JSONResponse({"data": [{"id": "m", "root": "m"}]})


def upstream() -> Starlette:
    """Return the upstream."""
    return Starlette(
        routes=[
            Route("/v1/chat/completions", _events, methods=["POST"]),
            Route("/health", _health),
            Route("/v1/models", _models),
        ]
    )


def plain(url: str) -> Starlette:
    """Return a proxy as most people would write it with httpx."""
    client = httpx.AsyncClient(base_url=url, timeout=None)

    async def forward(request: Request) -> Response:
        out = client.build_request(
            request.method, request.url.path, content=await request.body(),
            headers={"content-type": request.headers["content-type"]},
        )  # fmt: skip
        answer = await client.send(out, stream=True)
        headers = {"content-type": answer.headers["content-type"]}
        return StreamingResponse(answer.aiter_raw(), answer.status_code, headers)

    return Starlette(routes=[Route("/{path:path}", forward, methods=["GET", "POST"])])


if __name__ == "__main__":
    kind, port, *rest = sys.argv[1:]
    app: Any = answers
    if kind != "answers":
        app = upstream() if kind == "upstream" else plain(*rest)
    uvicorn.run(app, port=int(port), loop="uvloop", http="httptools", access_log=False)
