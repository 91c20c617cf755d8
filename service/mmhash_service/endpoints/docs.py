"""`GET /openapi.json` and `GET /docs`.

Both are generated at the first request. Generating them at the start would slow it down.
"""

import json
from collections.abc import Awaitable, Callable
from functools import cache

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.routing import Route

from mmhash_service.endpoints.docs_page import render
from mmhash_service.endpoints.page import respond


def routes_of(app: FastAPI) -> list[Route]:
    """Return the routes that describe the application."""

    def document() -> bytes:
        return json.dumps(app.openapi(), ensure_ascii=False, separators=(",", ":")).encode()

    def page() -> bytes:
        return render(app.openapi()).encode()

    return [
        Route("/openapi.json", _serve(document, "application/json")),
        Route("/docs", _serve(page, "text/html; charset=utf-8")),
    ]


def _serve(make: Callable[[], bytes], media_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = cache(make)

    async def serve(_request: Request) -> Response:
        return respond(await run_in_threadpool(content), media_type)

    return serve
