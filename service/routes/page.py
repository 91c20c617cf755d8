"""`GET /`: the web page. Its static files are read once and served from memory."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from blake3 import blake3
from fastapi import APIRouter, Request, Response
from starlette.routing import Route

_FOLDER = Path(__file__).parents[1] / "page"

# Not by mimetypes, whose system-wide table may have another type for JavaScript.
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_HEADERS = {
    # The name or content of a dropped file can neither run as a script nor be sent elsewhere.
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' blob: data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Cached, but revalidated each time, so that files of two versions are never mixed.
    "Cache-Control": "no-cache",
}

FILES = {
    "/" if path.name == "index.html" else f"/page/{path.name}": path
    for path in sorted(_FOLDER.iterdir())
}
"""The files of the page, by the path of their URL."""


def serve_content(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a file, which answers 304 if the client has it cached."""
    etag = f'"{blake3(content).hexdigest(length=16)}"'
    headers = {**_HEADERS, "ETag": etag}

    async def serve(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)

    return serve


# Unlike FastAPI's, Starlette's routes answer HEAD and are not in the OpenAPI document.
router = APIRouter(
    routes=[
        Route(url, serve_content(path.read_bytes(), _TYPES[path.suffix]))
        for url, path in FILES.items()
    ]
)
