"""What a call does, step by step: told by a generator, done by a client, of whichever kind it is.

So whatever a call decides is written once, and neither kind of client knows any of it.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

T = TypeVar("T")

# Every answer may have this much; what else it may have depends on what was asked.
ANSWER_BASE = 64 << 10

# httpcore copies each piece once on its way to the socket: this is what is held of the content.
_PIECE = 256 << 10


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send; the outcome is an `Answer`, of at most `limit` bytes if it is good."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    content: memoryview | None = None
    limit: int = ANSWER_BASE

    def target(self) -> str:
        """The path and the query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The type and the length of the content."""
        if self.content is None:
            return []
        return [
            (b"Content-Type", self.content_type.encode()),
            (b"Content-Length", b"%d" % len(self.content)),
        ]

    def pieces(self) -> Iterator[Any] | None:
        """The content, from where it lies and from its beginning each time."""
        content = self.content
        if content is None:
            return None
        return (content[at : at + _PIECE] for at in range(0, len(content), _PIECE))


class Pause(NamedTuple):
    """A wait of so many seconds; `OutOfTimeError` if the call has fewer left."""

    seconds: float


class OutOfTimeError(Exception):
    """A pause would end after the call's time."""


class RunInThread(NamedTuple):
    """What an event loop must not wait for; the outcome is what it gives."""

    function: Callable[[], Any]


Effects = Generator[Request | Pause | RunInThread, Any, T]
"""A call: it yields steps, has the outcome of each sent or thrown, and returns what was asked."""
