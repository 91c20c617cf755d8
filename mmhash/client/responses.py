"""Responses of the service, validated against their requests; error responses as exceptions.

A response that is malformed, too long, encoded or about other items is a `ServiceError`.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from html import escape
from math import isfinite
from typing import Any, Literal, NamedTuple, NoReturn, Self, get_args

import httpcore

from mmhash.digest import DIGEST_SIZE, Algorithm, Digest
from mmhash.errors import ServiceError
from mmhash.view import Kind

# A longer body of an error response is not read: the status suffices.
MAX_ERROR_BODY = 64 << 10
# The service's own details have fewer than 200 characters.
_MAX_DETAIL = 1000
_MAX_ERRORS = 8
_MAX_SHOWN = 80
# A longer Retry-After counts as a day.
_MAX_RETRY_AFTER_S = 86_400.0

_OK = 200
_PROBLEM = "application/problem+json"
_CACHE_STATUS: dict[str | None, Literal["hit", "miss"]] = {"hit": "hit", "miss": "miss"}

ItemKind = Kind | Literal["video", "audio"]
"""The kind of an item; a clip by its source is a video or audio."""
_KINDS = frozenset({*get_args(Kind), "video", "audio"})
_HEX = re.compile("[0-9a-f]+")
_MAX_DIMENSIONS = 64
_MAX_NUMBER = 1 << 63


class ResponseTooLongError(Exception):
    """The service sends more bytes than a response to this request can have."""


class NoResponseError(ServiceError):
    """The service did not respond: the request may be retried."""


class Response:
    """The head of a response, and its body as far as it was received."""

    def __init__(self, status: int, reason: str, headers: dict[bytes, bytes], limit: int) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.content = bytearray()
        self._limit = limit if status == _OK else MAX_ERROR_BODY

    @classmethod
    def begin(cls, response: httpcore.Response, limit: int) -> Self:
        """Return a response without its body, of which at most `limit` bytes are accepted."""
        reason: bytes = response.extensions.get("reason_phrase", b"")
        headers = {name.lower(): value for name, value in response.headers}
        head = cls(response.status, _printable(reason.decode("latin-1")), headers, limit)
        if response.status == _OK:
            encoding = headers.get(b"content-encoding", b"identity")
            if encoding.strip().lower() != b"identity":
                name = _shown(encoding.decode("latin-1"))
                malformed(f"it has the Content-Encoding {name}, and none was requested")
            length = headers.get(b"content-length", b"")
            if length.isdigit() and int(length[:20]) > limit:
                raise ResponseTooLongError
        return head

    def append(self, chunk: bytes) -> bool:
        """Append a chunk; return False if the rest of an error's body is not needed."""
        self.content += chunk
        if len(self.content) <= self._limit:
            return True
        if self.status == _OK:
            raise ResponseTooLongError
        self.content.clear()
        return False


class ExpectedItem(NamedTuple):
    """The fields that an item of a response must have; None for those not known in advance."""

    algorithm: Algorithm
    engines: frozenset[str]
    kind: ItemKind | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One item: kind, dtype, shape, the digest of its `nbytes` bytes, its key, engines' fields.

    `memo` is the status of the service's cache, `tag` its signature; both may be None. The fields
    of engines that apply EXIF orientation cover that of an image by its pixels; the key does not.
    `frames` are the keys of the frames or windows of a clip that was decoded.
    """

    name: str | None
    kind: ItemKind
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: Digest
    key: Digest
    engines: Mapping[str, Mapping[str, Any]]
    memo: Literal["hit", "miss"] | None
    tag: str | None
    exif_orientation: int = 1
    frames: tuple[Digest, ...] = ()

    @classmethod
    def parse(cls, payload: Any, expected: ExpectedItem) -> Self:
        """Parse an item of a response; raise unless it matches the expected one."""
        fields = _Fields(payload)
        fields.check("kind", expected.kind, _KINDS)
        fields.check("dtype", expected.dtype)
        fields.check("algorithm", expected.algorithm)
        return cls(
            fields.take_optional("name"),
            payload["kind"],
            payload["dtype"],
            _shape(fields, expected),
            _nbytes(fields, expected),
            _digest(expected.algorithm, "digest", payload),
            _digest("blake3", "key", payload),
            _engines(payload, expected),
            _cache_status(fields),
            fields.take_optional("tag"),
            _orientation(payload),
            _frames(fields),
        )

    def _repr_html_(self) -> str:
        """Return the item as a table for notebooks; names of the caller are escaped."""
        rows: dict[str, Any] = {
            "name": self.name,
            "kind": f"{self.kind} {self.dtype} {list(self.shape)}" if self.dtype else self.kind,
            "size": f"{self.nbytes:,} bytes",
            "digest": self.digest,
            "key": f"{self.key:x}",
            **{name: json.dumps(dict(fields)) for name, fields in self.engines.items()},
            "memo": self.memo,
        }
        cells = (
            f"<tr><th>{escape(name)}</th><td><code>{escape(str(value))}</code></td></tr>"
            for name, value in rows.items()
            if value is not None
        )
        return f"<table>{''.join(cells)}</table>"


class Annotated(NamedTuple):
    """A request with its items' keys inserted, ready to forward, and the items in their order."""

    request: dict[str, Any]
    items: list[Item]


def parse_items(payload: Any, expected: list[ExpectedItem]) -> list[Item]:
    """Parse the items of a response to `POST /hash`, one for each expected item."""
    items = member(payload, "items", list)
    if len(items) != len(expected):
        malformed(f"it has {len(items)} items, not {len(expected)}")
    return [Item.parse(*pair) for pair in zip(items, expected, strict=True)]


def member(payload: Any, name: str, kind: type) -> Any:
    """Return a member of a response; raise unless it has one of that type."""
    if not isinstance(payload, dict):
        malformed("it is not an object")
    return _Fields(payload).take(name, kind)


class _Fields:
    """The members of an object, checked to have their types."""

    def __init__(self, payload: Any) -> None:
        if not isinstance(payload, dict):
            malformed("an item is not an object")
        self._payload = payload

    def take(self, name: str, kind: type) -> Any:
        value = self._payload.get(name)
        if type(value) is not kind:  # a bool is an int
            malformed(f"its {name!r} is not of type {kind.__name__}, or missing")
        return value

    def take_optional(self, name: str) -> str | None:
        value = self._payload.get(name)
        if not (value is None or isinstance(value, str)):
            malformed(f"its {name!r} is not a string")
        return value

    def take_optional_list(self, name: str) -> list[Any]:
        return self.take(name, list) if self._payload.get(name) is not None else []

    def check(self, name: str, expected: str | None, known: frozenset[str] | None = None) -> None:
        value = self.take(name, str)
        if expected not in {None, value} or (known is not None and value not in known):
            valid = "a known one" if expected is None else repr(expected)
            malformed(f"an item has the {name} {_shown(value)}, not {valid}")


def _shape(fields: _Fields, expected: ExpectedItem) -> tuple[int, ...]:
    shape = fields.take("shape", list)
    if len(shape) > _MAX_DIMENSIONS or not all(map(_is_natural, shape)):
        malformed(f"an item has the shape {_shown(shape)}")
    if expected.shape not in {None, tuple(shape)}:
        malformed(f"an item has the shape {_shown(shape)}, not {list(expected.shape or ())}")
    return tuple(shape)


def _nbytes(fields: _Fields, expected: ExpectedItem) -> int:
    nbytes: int = fields.take("nbytes", int)
    if not _is_natural(nbytes):
        malformed(f"an item has {_shown(nbytes)} bytes")
    if expected.nbytes not in {None, nbytes}:
        malformed(f"an item has {nbytes} bytes, not {expected.nbytes}")
    return nbytes


def _engines(payload: Mapping[str, Any], expected: ExpectedItem) -> Mapping[str, Mapping[str, Any]]:
    engines = payload.get("engines", {})
    if not isinstance(engines, dict) or not engines.keys() <= expected.engines:
        names = ", ".join(sorted(expected.engines)) or "none"
        malformed(f"an item's 'engines' are not those requested: {names}")
    if not all(isinstance(request_fields, dict) for request_fields in engines.values()):
        malformed("an engine's request fields are not an object")
    return engines


def _cache_status(fields: _Fields) -> Literal["hit", "miss"] | None:
    memo = fields.take_optional("memo")
    if memo is not None and memo not in _CACHE_STATUS:
        malformed(f"an item has the memo {_shown(memo)}")
    return _CACHE_STATUS.get(memo)


def _orientation(payload: Mapping[str, Any]) -> int:
    orientation = payload.get("exif_orientation", 1)
    if type(orientation) is not int or not 1 <= orientation <= 8:
        malformed(f"an item has the EXIF orientation {_shown(orientation)}")
    return orientation


def _frames(fields: _Fields) -> tuple[Digest, ...]:
    frames = fields.take_optional_list("frames")
    return tuple(_digest("blake3", "frame", {"frame": frame}) for frame in frames)


def _is_natural(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_NUMBER


def _digest(algorithm: Algorithm, name: str, payload: Mapping[str, Any]) -> Digest:
    text = payload.get(name)
    size = 2 * DIGEST_SIZE[algorithm]
    if not (isinstance(text, str) and len(text) == size and _HEX.fullmatch(text)):
        malformed(f"an item has the {name} {_shown(text)}, not {size} hex digits")
    return Digest(algorithm, bytes.fromhex(text))


def malformed(reason: str) -> NoReturn:
    """Raise the error of an invalid response of status 200."""
    raise ServiceError(f"the response does not match the request: {reason}", status=_OK)


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _printable(text: str) -> str:
    """Return a server's text, shortened and without control characters."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text[:_MAX_DETAIL])


def error_from_response(response: Response) -> ServiceError:
    """Return the exception for an error response."""
    payload = _problem(response)
    detail, problem = payload.get("detail"), payload.get("type")
    if not isinstance(detail, str):
        detail = f"{response.status} {response.reason}"
        if 300 <= response.status < 400:
            detail += ": redirects are not followed; use the address that they lead to"
    return ServiceError(
        _printable(detail),
        status=response.status,
        problem=_printable(problem) if isinstance(problem, str) else "about:blank",
        retry_after=_seconds(response.headers.get(b"retry-after", b"").decode("latin-1")),
        errors=tuple(_places(payload.get("errors"))),
    )


def _places(errors: Any) -> Iterator[str]:
    """Yield a problem's errors as texts: the place, which may be the whole body, and the reason."""
    for error in errors[:_MAX_ERRORS] if isinstance(errors, list) else ():
        if isinstance(error, dict) and isinstance(reason := error.get("reason"), str):
            place = error.get("parameter") or error.get("pointer")
            yield _printable(f"{place}: {reason}" if place and isinstance(place, str) else reason)


def _problem(response: Response) -> dict[str, Any]:
    """Return the problem (RFC 9457) of a response; {} for other bodies, such as a proxy's page."""
    if response.headers.get(b"content-type") != _PROBLEM.encode():
        return {}
    try:
        payload = _parse(response)
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def _seconds(retry_after: str) -> float | None:
    """Parse a Retry-After header, seconds or a date, to at most a day."""
    try:
        if retry_after.isdigit():
            return min(float(retry_after), _MAX_RETRY_AFTER_S)
        seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        return min(max(0.0, seconds), _MAX_RETRY_AFTER_S)
    except (ValueError, TypeError, LookupError, ArithmeticError, OSError):
        return None


def document(response: Response) -> Any:
    """Parse the JSON of a successful response."""
    try:
        return _parse(response)
    except (ValueError, RecursionError):
        raise ServiceError(
            "the response is not JSON: is this another server?", status=response.status
        ) from None


def _parse(response: Response) -> Any:
    # A lone surrogate is decoded as it is encoded in requests.
    text = response.content.decode("utf-8", "surrogatepass")
    return json.loads(
        text,
        object_pairs_hook=_unique,
        parse_constant=_refuse_constant,
        parse_float=_finite,
    )


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(members)
    if len(unique) != len(members):
        raise ValueError("an object has a duplicate name")
    return unique


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number is larger than all floats")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
