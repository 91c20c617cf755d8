"""What a call does, step by step: told by a generator, done by a client, of whichever kind it is.

So whatever a call decides is written once, and neither kind of client knows any of it.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

# httpx copies each piece once on its way to the socket: this is what is held of the content.
_PIECE = 256 << 10


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send; the outcome is httpx's response."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    content: memoryview | None = None

    def headers(self) -> dict[str, str]:
        """What says how the content is to be read."""
        if self.content is None:
            return {}
        # Without a length httpx would send it in chunks.
        return {"Content-Type": self.content_type, "Content-Length": str(len(self.content))}

    def pieces(self) -> Iterator[Any] | None:
        """The content, from where it lies and from its beginning each time."""
        content = self.content
        if content is None:
            return None
        return (content[at : at + _PIECE] for at in range(0, len(content), _PIECE))


class Pause(NamedTuple):
    """So many seconds in which nothing is done."""

    seconds: float


class Work(NamedTuple):
    """What an event loop must not wait for; the outcome is what it gives."""

    function: Callable[[], Any]


Steps = Generator[Request | Pause | Work, Any, T]
"""A call: it yields steps, has the outcome of each sent or thrown, and returns what was asked."""
