"""A multipart/form-data body, an item or more a part: each part is read as a body of its own."""

import logging
from collections.abc import Callable

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from mmhash_service.api.problems import Problem
from mmhash_service.api.schemas import Item
from mmhash_service.bodies.readers import Reader
from mmhash_service.runtime.context import RequestContext

# What begins a part: its Content-Type (of a part without one, that of plain bytes) and its name.
Open = Callable[[str, str | None], Reader]

# It quotes the client's bytes.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

_MAX_CONTENT_TYPE = 1024
_RAW = "application/octet-stream"

# Codings that are none. With any other, the part's content is not the bytes that are hashed.
_PLAIN = frozenset({b"binary", b"8bit", b"7bit"})


class MultipartReader:
    """The parts, each read as it comes; at most one is open."""

    def __init__(self, call: RequestContext, content_type: str, open_part: Open) -> None:
        self._max_items = call.settings.max_items
        self._open = open_part
        self._parts: list[Reader] = []
        self._headers: dict[bytes, bytes] = {}
        self._field = self._value = b""
        self._begun = self._ended = False
        self._parser = MultipartParser(
            _boundary(content_type),
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._on_field,
                "on_header_value": self._on_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._on_data,
                "on_end": self._end,
            },
        )

    def take(self, piece: bytes | memoryview, /) -> None:
        """Take the next piece, which may hold many parts or a part of one."""
        content = bytes(piece)
        if not self._begun:
            # The parser skips line breaks and, if it all comes in one piece, whatever follows them
            # up to a boundary. How a body is cut must not matter: a boundary is the first it gets.
            content = content.lstrip(b"\r\n")
            self._begun = bool(content)
        try:
            self._parser.write(content)
        except FormParserError as error:
            raise Problem("damaged-multipart") from error

    async def finish(self) -> list[Item]:
        """The items of all parts, in their order."""
        if not self._ended:
            raise Problem("damaged-multipart")
        return [item for part in self._parts for item in await part.finish()]

    def _begin_part(self) -> None:
        if len(self._parts) == self._max_items:
            raise Problem("too-many-items")
        self._headers.clear()
        self._field = self._value = b""

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        name = self._field.lower()
        if name in self._headers:
            raise Problem("duplicate-header")
        self._headers[name] = self._value
        self._field = self._value = b""

    def _end_headers(self) -> None:
        if not _is_plain(self._headers):
            raise Problem("unsupported-encoding")
        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"filename") or options.get(b"name")
        if kind != b"form-data" or name is None:
            raise Problem("damaged-multipart")
        content_type = self._headers.get(b"content-type", b"").decode("latin-1")
        self._parts.append(self._open(content_type or _RAW, name.decode(errors="replace")))

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        # A view: a part is not copied out of the piece in which it came.
        self._parts[-1].take(memoryview(data)[start:end])

    def _end(self) -> None:
        self._ended = True


def _is_plain(headers: dict[bytes, bytes]) -> bool:
    return (
        b"content-encoding" not in headers
        and b"transfer-encoding" not in headers
        and headers.get(b"content-transfer-encoding", b"binary").strip().lower() in _PLAIN
    )


def _boundary(content_type: str) -> bytes:
    if len(content_type) > _MAX_CONTENT_TYPE:
        raise Problem("damaged-multipart")
    _, options = parse_options_header(content_type)
    boundary: bytes = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= 70:  # RFC 2046
        raise Problem("damaged-multipart")
    return boundary
