"""Output of hashes and errors, one per line; a file with an error does not stop the others."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import typer

from mmhash.cli.terminal import visible
from mmhash.errors import MMHashError
from mmhash.io.names import STDIN, escape, printable, reason


class Hashed(NamedTuple):
    """An item of a file: the hashes of its lines, and the members of its JSON object."""

    name: str
    hashes: list[str]
    fields: Mapping[str, Any]


def print_lines(
    files: list[str] | None, hashes_of: Callable[[str], Iterable[Hashed]], *, as_json: bool
) -> None:
    """Print `<hash>  <name>` for each item of each file; exit with 1 if a file has an error.

    As in b3sum's lines, one with an escaped name begins with a backslash.
    """
    failed = False
    for file in files or [STDIN]:
        try:
            hashes = list(hashes_of(file))
        except (OSError, MMHashError) as error:
            complain(f"{printable(file)}: {reason(error)}")
            failed = True
        else:
            for name, texts, fields in hashes:
                if as_json:
                    say_json({"name": name} | dict(fields))
                    continue
                mark, shown = escape(name)
                for text in texts:
                    say(f"{mark}{text}  {shown}")
    if failed:
        raise typer.Exit(1)


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun, as in `1 item` and `2 items`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def say(line: str) -> None:
    """Print a line and flush it, because the next file may take long."""
    print(visible(line, sys.stdout), flush=True)  # noqa: T201


def say_json(value: Mapping[str, Any]) -> None:
    """Print an object as one line of JSON."""
    say(json.dumps(value, default=str))


def complain(text: str) -> None:
    """Print an error or a warning on stderr."""
    typer.echo(visible(f"mmhash: {text}", sys.stderr), err=True)
