"""The records of a trace: content by id and size, one JSON line for each request."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Text:
    """A text of this many tokens. Equal ids stand for equal texts."""

    text: str
    tokens: int


@dataclass(frozen=True)
class Image:
    """An image. Equal ids stand for equal images. A token is 28 by 28 pixels, as in Qwen2-VL."""

    image: str
    width: int
    height: int

    @property
    def tokens(self) -> int:
        """The number of tokens of the image's placeholder."""
        return (self.width // TOKEN_SIDE) * (self.height // TOKEN_SIDE)


TOKEN_SIDE = 28


@dataclass(frozen=True)
class Message:
    """A message of a chat."""

    role: str
    content: tuple[Image | Text, ...]


@dataclass(frozen=True)
class Request:
    """A request: all of its chat up to this turn."""

    at: float  # seconds since the start of the trace
    client: str
    tenant: str
    session: str
    turn: int
    messages: tuple[Message, ...]
    output_tokens: int

    @property
    def images(self) -> list[Image]:
        """All images, in order."""
        return [part for part in self._parts() if isinstance(part, Image)]

    @property
    def new_images(self) -> list[Image]:
        """The images of the last message."""
        return [part for part in self.messages[-1].content if isinstance(part, Image)]

    @property
    def new_text_tokens(self) -> int:
        """The text tokens of the last message."""
        parts = self.messages[-1].content
        return sum(part.tokens for part in parts if isinstance(part, Text))

    @property
    def tokens(self) -> int:
        """The number of tokens in the prompt, apart from the chat template's own."""
        return sum(part.tokens for part in self._parts())

    def _parts(self) -> Iterator[Image | Text]:
        for message in self.messages:
            yield from message.content


def write_jsonl(requests: Iterable[Request], path: Path) -> None:
    """Write a line for each request."""
    with path.open("w") as file:
        for request in requests:
            file.write(json.dumps(asdict(request), separators=(",", ":")) + "\n")
