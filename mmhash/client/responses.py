"""Responses of the service: their heads and JSON, and error responses as exceptions.

A response that is malformed, too long or encoded is a `ServiceError`.
"""

import json
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, NoReturn, Self

import httpcore

from mmhash.errors import ServiceError

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
                name = shown(encoding.decode("latin-1"))
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


def member(payload: Any, name: str, kind: type) -> Any:
    """Return a member of a response; raise unless it has one of that type."""
    if not isinstance(payload, dict):
        malformed("it is not an object")
    value = payload.get(name)
    if type(value) is not kind:  # a bool is an int
        malformed(f"its {name!r} is not of type {kind.__name__}, or missing")
    return value


def malformed(reason: str) -> NoReturn:
    """Raise the error of an invalid response of status 200."""
    raise ServiceError(f"the response does not match the request: {reason}", status=_OK)


def shown(value: Any) -> str:
    """Return a value of a response as text for an error message."""
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
