"""The web pages. Their files are read once and served from memory."""

from collections.abc import Awaitable, Callable
from html import escape
from pathlib import Path

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
    # Files of two versions must not be mixed.
    "Cache-Control": "no-store",
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


def respond(content: bytes, media_type: str) -> Response:
    """Return the response with a page or one of its files."""
    return Response(content, headers=_HEADERS, media_type=media_type)


def _serve(path: Path, links: dict[str, str]) -> Callable[[Request], Awaitable[Response]]:
    content = render(path, links)

    async def serve(_request: Request) -> Response:
        return respond(content, _TYPES[path.suffix])

    return serve


def _routes(files: dict[str, Path], links: dict[str, str]) -> list[BaseRoute]:
    # Starlette's routes answer HEAD and stay out of OpenAPI, unlike FastAPI's.
    return [Route(url, _serve(path, links)) for url, path in files.items()]


router = APIRouter(routes=_routes(FILES, _PAGES))
gateway_router = APIRouter(routes=_routes(GATEWAY_FILES, {}))
