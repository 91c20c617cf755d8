"""A request and its response, shared by both clients."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import uniform
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlencode

import httpx
import msgspec
from msgspec import Struct

from mmhash.errors import ServiceError

T = TypeVar("T")

# httpx copies each piece of a body before writing it. Small pieces bound the copy.
_PIECE = 256 << 10
_FIRST_PAUSE_S = 0.1

# Statuses for which the same request may succeed a little later.
_TEMPORARY = frozenset({429, 503})


class NoResponseError(ServiceError):
    """The service did not respond; the request may be retried."""


class Payload(NamedTuple):
    """An item to send. The content of an image is its file; the service hashes the pixels."""

    kind: Literal["bytes", "tensor", "image"]
    content: memoryview
    dtype: str = ""
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `payload` is its item if shared memory may carry the item instead of the body."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    content: memoryview | None = None
    payload: Payload | None = None

    def target(self) -> str:
        """Return the path with the query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def headers(self) -> dict[str, str]:
        """Return the headers that describe the content."""
        if self.content is None:
            return {}
        return {"Content-Type": self.content_type, "Content-Length": str(len(self.content))}

    def pieces(self) -> Iterator[Any]:
        """Return views of the content, without copying all of it."""
        content = self.content or memoryview(b"")
        return (content[start : start + _PIECE] for start in range(0, len(content), _PIECE))


class _Place(Struct):
    reason: str
    parameter: str = ""
    pointer: str = ""
    part: str = ""


class _Problem(Struct):
    """A problem of the service (RFC 9457)."""

    type: str = "about:blank"
    detail: str = ""
    reason: str = ""
    errors: list[_Place] = []


def body_of(response: httpx.Response, body: bytes) -> bytes:
    """Return the body of a successful response; raise an error for any other response."""
    if response.status_code == httpx.codes.OK:
        return body
    problem = _Problem()
    # Another server may have answered, for example a proxy with its page.
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        problem = msgspec.json.decode(body, type=_Problem)
    detail = problem.detail or f"{response.status_code} {response.reason_phrase}"
    if response.is_redirect:
        detail += ": redirects are not followed; use the address that they lead to"
    errors = [problem.reason] if problem.reason and not problem.errors else []
    for error in problem.errors:
        place = error.parameter or error.pointer or error.part
        errors.append(f"{place}: {error.reason}" if place else error.reason)
    retry_after = response.headers.get("Retry-After", "")
    raise ServiceError(
        detail,
        status=response.status_code,
        problem=problem.type,
        retry_after=float(retry_after) if retry_after.isdecimal() else None,
        errors=tuple(errors),
    )


class Attempts:
    """The attempts to send the requests of one call before its deadline."""

    def __init__(self, timeout_s: float, retries: int) -> None:
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._retries = retries
        self._failed = 0

    def seconds_left(self) -> float:
        """Return the seconds until the deadline; raise an error if it has passed."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._timed_out()
        return left

    def timed(self, pieces: Iterator[T]) -> Iterator[T]:
        """Yield pieces until the deadline. The time-outs of httpx restart with each piece."""
        for piece in pieces:
            self.seconds_left()
            yield piece

    def pause_after(self, error: ServiceError) -> float:
        """Return the seconds before the next attempt; raise the error if no attempt is left.

        Every request may be retried: no request changes the state of the service.
        """
        is_temporary = isinstance(error, NoResponseError) or error.status in _TEMPORARY
        if not is_temporary or self._failed == self._retries:
            raise error
        # Clients that were refused together should not retry together.
        jitter_s: float = uniform(0.5, 1) * _FIRST_PAUSE_S * 2**self._failed  # noqa: S311  (no secret)
        pause_s = (error.retry_after or 0.0) + jitter_s
        if time.monotonic() + pause_s > self._deadline:
            raise error
        self._failed += 1
        return pause_s

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Convert the errors of httpx and asyncio.timeout() to client errors."""
        try:
            yield
        except (httpx.TimeoutException, TimeoutError) as error:
            raise self._timed_out() from error
        except (httpx.HTTPError, OSError) as error:
            raise NoResponseError(f"no response: {str(error) or type(error).__name__}") from error

    def _timed_out(self) -> NoResponseError:
        return NoResponseError(f"no response: the call took longer than {self._timeout_s:g} s")
