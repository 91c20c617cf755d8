"""`GET /`: a page for people. Its files are plain ones, read once and served from memory."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from blake3 import blake3
from fastapi import APIRouter, Request, Response
from starlette.routing import Route

_FOLDER = Path(__file__).parents[1] / "page"

# Not by the machine's own table of types, which may know another name for JavaScript.
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_HEADERS = {
    # A name or a picture that a person drops can neither run nor be sent elsewhere.
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
    # Kept, but asked for each time: after an upgrade no file of the old page meets one of the new.
    "Cache-Control": "no-cache",
}

FILES = {
    "/" if path.name == "index.html" else f"/page/{path.name}": path
    for path in sorted(_FOLDER.iterdir())
}
"""Where each file of the page is served."""


def _serve(path: Path) -> Callable[[Request], Awaitable[Response]]:
    """What answers with that file, or with 304 to who has it."""
    content = path.read_bytes()
    etag = f'"{blake3(content).hexdigest(length=16)}"'
    headers = {**_HEADERS, "ETag": etag}
    media_type = _TYPES[path.suffix]

    async def serve(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)

    return serve


# Starlette's routes answer HEAD too and are not in the OpenAPI page.
router = APIRouter(routes=[Route(url, _serve(path)) for url, path in FILES.items()])
