"""One request and its response, as both clients send and read them, within limits."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import uniform
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlencode

import httpx
import msgspec

from mmhash.client.payload import Payload
from mmhash.errors import ServiceError

T = TypeVar("T")

# The bytes that each response may have, besides those that depend on its request.
RESPONSE_BASE = 64 << 10
# A longer body of an error response is not read: the status suffices.
_MAX_ERROR_BODY = 64 << 10
# The parts of a problem that are shown; the service's own details have fewer than 200 characters.
_MAX_TEXT = 1000
_MAX_ERRORS = 8
# A longer Retry-After counts as a day.
_MAX_RETRY_AFTER_S = 86_400.0
# httpx copies each piece of a body once before it writes it: this bounds the copy.
_PIECE = 256 << 10
_FIRST_PAUSE_S = 0.1

_OK = 200
# The same request may succeed a little later.
_TEMPORARY = frozenset({429, 503})


class NoResponseError(ServiceError):
    """The service did not respond: the request may be sent again."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request; its response has at most `limit` bytes if it succeeds.

    `payload` is its item, if that may be passed in shared memory instead.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    content: memoryview | None = None
    limit: int = RESPONSE_BASE
    payload: Payload | None = None

    def target(self) -> str:
        """Return the path and the query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def headers(self) -> dict[str, str]:
        """Return the headers of the content."""
        if self.content is None:
            return {}
        return {"Content-Type": self.content_type, "Content-Length": str(len(self.content))}

    def pieces(self) -> Iterator[Any]:
        """Return views of the content, which is not copied as a whole."""
        content = self.content or memoryview(b"")
        return (content[start : start + _PIECE] for start in range(0, len(content), _PIECE))


class ResponseReader:
    """The body of one response, up to a limit."""

    def __init__(self, request: Request, response: httpx.Response) -> None:
        self._response = response
        self._content = bytearray()
        self._limit = request.limit if response.status_code == _OK else _MAX_ERROR_BODY
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.strip().lower() != "identity":
            malformed(f"it has the Content-Encoding {encoding[:80]!a}, and none was requested")

    def append(self, chunk: bytes) -> None:
        """Append a chunk; raise if the body is longer than its limit."""
        self._content += chunk
        if len(self._content) <= self._limit:
            return
        self._content.clear()
        if self._response.status_code != _OK:
            raise self._error()
        raise ServiceError(
            f"the response is longer than {self._limit} bytes, the limit for this request"
        )

    def result(self) -> bytes:
        """Return the body of a successful response; raise the error of any other."""
        if self._response.status_code != _OK:
            raise self._error()
        return bytes(self._content)

    def _error(self) -> ServiceError:
        response, problem = self._response, self._problem()
        detail, kind = problem.get("detail"), problem.get("type")
        if not isinstance(detail, str):
            detail = f"{response.status_code} {response.reason_phrase}"
            if response.is_redirect:
                detail += ": redirects are not followed; use the address that they lead to"
        return ServiceError(
            _printable(detail),
            status=response.status_code,
            problem=_printable(kind) if isinstance(kind, str) else "about:blank",
            retry_after=_seconds(response.headers.get("Retry-After", "")),
            errors=(*_reason(problem.get("reason")), *_places(problem.get("errors"))),
        )

    def _problem(self) -> dict[str, Any]:
        """Return the problem (RFC 9457); {} for other bodies, such as a proxy's page."""
        if self._response.headers.get("Content-Type") != "application/problem+json":
            return {}
        try:
            return msgspec.json.decode(self._content, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            return {}


class Attempts:
    """The attempts to send the requests of one call, until its deadline."""

    def __init__(self, timeout_s: float, retries: int) -> None:
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._retries = retries
        self._failed = 0

    def seconds_left(self) -> float:
        """Return the seconds until the deadline; raise if it has passed."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._timed_out()
        return left

    def timed(self, pieces: Iterator[T]) -> Iterator[T]:
        """Yield pieces until the deadline: the time-outs of httpx start anew with each one."""
        for piece in pieces:
            self.seconds_left()
            yield piece

    def pause_after(self, error: ServiceError) -> float:
        """Return the seconds to wait before the next attempt; raise the error if there is none.

        Every request may be sent again: none changes the state of the service.
        """
        is_temporary = isinstance(error, NoResponseError) or error.status in _TEMPORARY
        if not is_temporary or self._failed == self._retries:
            raise error
        # Clients that were refused together should not return together.
        jitter_s: float = uniform(0.5, 1) * _FIRST_PAUSE_S * 2**self._failed  # noqa: S311  (no secret)
        pause_s = (error.retry_after or 0.0) + jitter_s
        if time.monotonic() + pause_s > self._deadline:
            raise error
        self._failed += 1
        return pause_s

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Turn the errors of httpx and of asyncio.timeout() into those of the client."""
        try:
            yield
        except (httpx.TimeoutException, TimeoutError) as error:
            raise self._timed_out() from error
        except (httpx.TransportError, OSError, UnicodeError) as error:
            raise NoResponseError(f"no response: {str(error) or type(error).__name__}") from error

    def _timed_out(self) -> NoResponseError:
        return NoResponseError(f"no response: the call took longer than {self._timeout_s:g} s")


def malformed(reason: str) -> NoReturn:
    """Raise the error of an invalid response of status 200."""
    raise ServiceError(f"the response does not match the request: {reason}", status=_OK)


def _printable(text: str) -> str:
    """Return a server's text, shortened and without control characters."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text[:_MAX_TEXT])


def _reason(reason: Any) -> Iterator[str]:
    """Yield a problem's reason, which has values of the request."""
    if isinstance(reason, str):
        yield _printable(reason)


def _places(errors: Any) -> Iterator[str]:
    """Yield a problem's errors as texts: the place, which may be the whole body, and the reason."""
    for error in errors[:_MAX_ERRORS] if isinstance(errors, list) else ():
        if isinstance(error, dict) and isinstance(reason := error.get("reason"), str):
            place = error.get("parameter") or error.get("pointer")
            yield _printable(f"{place}: {reason}" if place and isinstance(place, str) else reason)


def _seconds(retry_after: str) -> float | None:
    """Parse the seconds of a Retry-After header, to at most a day."""
    is_number = retry_after.isascii() and retry_after.isdigit()
    return min(float(retry_after), _MAX_RETRY_AFTER_S) if is_number else None
