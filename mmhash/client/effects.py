"""Effects: a call is a generator that yields them, and either client carries them out.

So the logic of a call exists once, for waiting and for awaiting.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

T = TypeVar("T")

# The bytes that each response may have, besides those that depend on its request.
RESPONSE_BASE = 64 << 10

# httpcore copies each chunk once before it writes it: this bounds the copy.
_CHUNK = 256 << 10


@dataclass(frozen=True, slots=True)
class Request:
    """Send a request; the outcome is a `Response`, of at most `limit` bytes if it has succeeded."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    content: memoryview | None = None
    limit: int = RESPONSE_BASE

    def target(self) -> str:
        """Return the path and the query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of the content."""
        if self.content is None:
            return []
        return [
            (b"Content-Type", self.content_type.encode()),
            (b"Content-Length", b"%d" % len(self.content)),
        ]

    def chunks(self) -> Iterator[Any] | None:
        """Return a new iterator of views of the content."""
        content = self.content
        if content is None:
            return None
        return (content[offset : offset + _CHUNK] for offset in range(0, len(content), _CHUNK))


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields of a query or a body that the caller has given."""
    return {name: value for name, value in fields.items() if value is not None}


class Pause(NamedTuple):
    """Sleep; `OutOfTimeError` is raised if the call has fewer seconds left."""

    seconds: float


class OutOfTimeError(Exception):
    """A pause would end after the deadline of the call."""


class RunInThread(NamedTuple):
    """Run a function that would block an event loop; the outcome is its result."""

    function: Callable[[], Any]


Effects = Generator[Request | Pause | RunInThread, Any, T]
"""A call: it yields effects, receives the outcome of each or an exception, and returns a result."""
