"""Lines of output and of errors, safe for a terminal."""

import json
import sys
from collections.abc import Mapping
from typing import Any, TextIO


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun: `1 item` or `2 items`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def say(line: str) -> None:
    """Print a line and flush it, because the next file may take long."""
    print(visible(line, sys.stdout), flush=True)  # noqa: T201


def say_json(value: Mapping[str, Any]) -> None:
    """Print an object as one line of JSON."""
    say(json.dumps(value, default=str))


def complain(text: str) -> None:
    """Print an error or a warning on stderr."""
    if sys.stderr is not None:  # stderr may be closed
        print(visible(f"mmhash: {text}", sys.stderr), file=sys.stderr)  # noqa: T201


def visible(text: str, stream: TextIO | None) -> str:
    r"""Return one line of text, made safe for the stream.

    A terminal would execute control characters in names. For a terminal, this escapes every
    character that is not printable or changes how its neighbours look, for example as `\x1b` or
    `\u202e`. For files and pipes the text stays unchanged.
    """
    if text.isprintable() or stream is None or stream.closed or not stream.isatty():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
