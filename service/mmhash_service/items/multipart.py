"""Reads multipart/form-data: each part like a body with the part's Content-Type."""

import logging
from collections.abc import Callable

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem
from mmhash_service.items.readers import Reader
from mmhash_service.limits.threads import end_turn
from mmhash_service.problems.problem import Problem, naming, shown

OpenPart = Callable[[str, str], Reader]
"""Returns the reader for a part, given its Content-Type and name."""

# The package would log the client's bytes.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

_MAX_CONTENT_TYPE = 1024
_DEFAULT_CONTENT_TYPE = "application/octet-stream"

# Encodings that leave the content unchanged. Any other would hash bytes that the client never had.
_IDENTITY_ENCODINGS = frozenset({b"binary", b"8bit", b"7bit"})


class MultipartReader:
    """Passes each part to its own reader."""

    def __init__(self, context: RequestContext, content_type: str, open_part: OpenPart) -> None:
        self._count_items = context.admission.count_items
        self._open_part = open_part
        self._parts: list[tuple[str, Reader]] = []
        self._headers: dict[bytes, bytes] = {}
        self._field = self._value = b""
        self._has_begun = self._has_ended = False
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
        """Parse the next piece, which may hold many parts or less than one."""
        content = bytes(piece)
        if not self._has_begun:
            # The parser skips leading line breaks, and with them any text before the first boundary
            # that arrives in the same piece. Without them, the cut into pieces does not matter.
            content = content.lstrip(b"\r\n")
            self._has_begun = bool(content)
        try:
            self._parser.write(content)
        except FormParserError as error:
            raise Problem("damaged-multipart", reason=str(error)[:100]) from error

    async def finish(self) -> list[HashedItem]:
        """Return the items of all parts, in order."""
        if not self._has_ended:
            raise Problem("damaged-multipart", reason="the body ends before its last boundary")
        items: list[HashedItem] = []
        for count, (name, part) in enumerate(self._parts, 1):
            with naming(part=name):
                items += await part.finish()
            await end_turn(count)
        return items

    def _begin_part(self) -> None:
        self._count_items(1)
        self._headers.clear()
        self._field = self._value = b""

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        name = self._field.lower()
        if name in self._headers:
            reason = f"a part has the header {shown(name.decode('latin-1'))} twice"
            raise Problem("duplicate-header", reason=reason)
        self._headers[name] = self._value
        self._field = self._value = b""

    def _end_headers(self) -> None:
        if not _is_unencoded(self._headers):
            reason = "a part has an encoding that changes its bytes: send it unencoded"
            raise Problem("unsupported-encoding", reason=reason)
        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"filename") or options.get(b"name")
        if kind != b"form-data" or name is None:
            reason = 'a part lacks a Content-Disposition such as form-data; name="photo"'
            raise Problem("damaged-multipart", reason=reason)
        content_type = self._headers.get(b"content-type", b"").decode("latin-1")
        part_name = name.decode(errors="replace")
        with naming(part=part_name):
            reader = self._open_part(content_type or _DEFAULT_CONTENT_TYPE, part_name)
        self._parts.append((part_name, reader))

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        name, reader = self._parts[-1]
        with naming(part=name):
            reader.take(memoryview(data)[start:end])  # a view, to avoid copying the content

    def _end(self) -> None:
        self._has_ended = True


def _is_unencoded(headers: dict[bytes, bytes]) -> bool:
    return (
        b"content-encoding" not in headers
        and b"transfer-encoding" not in headers
        and headers.get(b"content-transfer-encoding", b"binary").strip().lower()
        in _IDENTITY_ENCODINGS
    )


def _boundary(content_type: str) -> bytes:
    if len(content_type) > _MAX_CONTENT_TYPE:
        reason = f"the Content-Type has more than {_MAX_CONTENT_TYPE} bytes"
        raise Problem("damaged-multipart", reason=reason)
    _, options = parse_options_header(content_type)
    boundary: bytes = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= 70:  # RFC 2046
        reason = f"the boundary in the Content-Type has {len(boundary)} bytes, not 1 to 70"
        raise Problem("damaged-multipart", reason=reason)
    return boundary
