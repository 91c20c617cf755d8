"""The web pages. Their files are read once and served from memory."""

from collections.abc import Awaitable, Callable
from html import escape
from pathlib import Path

from blake3 import blake3
from fastapi import APIRouter, Request, Response
from starlette.routing import BaseRoute, Route

import mmhash

_FOLDER = Path(__file__).parents[1] / "page"

# mimetypes reads a table of the system, which may have another type for JavaScript.
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_HEADERS = {
    # A dropped file's name and content can neither run as a script nor be sent elsewhere.
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
    # Revalidate cached files each time, so that files of two versions are never mixed.
    "Cache-Control": "no-cache",
}

_ASSETS = {
    f"/page/{path.name}": path for path in sorted(_FOLDER.iterdir()) if path.suffix != ".html"
}
_FLEET = {"/fleet": _FOLDER / "fleet.html"}

FILES = {"/": _FOLDER / "index.html", **_FLEET, **_ASSETS}
"""The files of the service's pages, by URL path."""

GATEWAY_FILES = _FLEET | _ASSETS
"""The files of the gateway's page. The gateway's other paths belong to the workers."""

_PAGES = {"Keys": "./", "Fleet": "fleet", "API": "docs"}


def render(path: Path, links: dict[str, str]) -> bytes:
    """Return a file, with version and links filled in if it is a page."""
    content = path.read_bytes()
    if path.suffix != ".html":
        return content
    current = {"index": "./"}.get(path.stem, path.stem)
    anchors = " ".join(_anchor(name, url, is_current=url == current) for name, url in links.items())
    content = content.replace(b"{{version}}", escape(mmhash.__version__).encode())
    return content.replace(b"{{links}}", anchors.encode())


def _anchor(name: str, url: str, *, is_current: bool) -> str:
    current = ' aria-current="page"' if is_current else ""
    return f'<a href="{escape(url)}"{current}>{escape(name)}</a>'


def serve_content(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a file. It answers 304 if the client has the file."""
    etag = f'"{blake3(content).hexdigest(length=16)}"'
    headers = {**_HEADERS, "ETag": etag}

    async def serve(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)

    return serve


def _routes(files: dict[str, Path], links: dict[str, str]) -> list[BaseRoute]:
    # Starlette's routes answer HEAD and stay out of OpenAPI, unlike FastAPI's.
    return [
        Route(url, serve_content(render(path, links), _TYPES[path.suffix]))
        for url, path in files.items()
    ]


router = APIRouter(routes=_routes(FILES, _PAGES))
gateway_router = APIRouter(routes=_routes(GATEWAY_FILES, {}))
