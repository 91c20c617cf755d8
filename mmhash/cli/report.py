"""Output of hashes and errors, one per line; an error in one file does not stop the others."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TextIO

from mmhash.errors import MMHashError
from mmhash.io.names import STDIN, escape, printable, reason


class Hashed(NamedTuple):
    """An item of a file: the hashes of its output lines, and the members of its JSON object."""

    name: str
    hashes: list[str]
    fields: Mapping[str, Any]


def print_lines(
    files: list[str] | None, hashes_of: Callable[[str], Iterable[Hashed]], *, as_json: bool
) -> bool:
    """Print `<hash>  <name>` for each item of each file; return False if any file has an error.

    A line with an escaped name begins with a backslash, as in the output of b3sum.
    """
    is_complete = True
    for file in files or [STDIN]:
        try:
            hashes = list(hashes_of(file))
        except (OSError, MMHashError) as error:
            complain(f"{printable(file)}: {reason(error)}")
            is_complete = False
        else:
            for name, texts, fields in hashes:
                if as_json:
                    say_json({"name": name} | dict(fields))
                    continue
                mark, shown = escape(name)
                for text in texts:
                    say(f"{mark}{text}  {shown}")
    return is_complete


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun: `1 item` or `2 items`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def say(line: str) -> None:
    """Print a line and flush it: the next file may take long."""
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

    A terminal would execute control characters in names. So for a terminal, every character that is
    not printable, or that changes how its neighbours are shown, becomes an escape such as `\x1b` or
    `\u202e`. For files and pipes the text stays unchanged.
    """
    if text.isprintable() or stream is None or stream.closed or not stream.isatty():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
