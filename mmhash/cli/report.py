"""Output of hashes and errors, one per line; a file with an error does not stop the others."""

import sys
from collections.abc import Callable, Iterable

import typer

from mmhash.cli.sumline import format_line
from mmhash.cli.terminal import visible
from mmhash.errors import MMHashError
from mmhash.io.names import STDIN, printable, reason


def print_lines(
    files: list[str] | None, hashes_of: Callable[[str], Iterable[tuple[str, str]]]
) -> None:
    """Print `<hash>  <name>` for each item of each file; exit with 1 if a file has an error."""
    failed = False
    for file in files or [STDIN]:
        try:
            hashes = list(hashes_of(file))
        except (OSError, MMHashError) as error:
            complain(f"{printable(file)}: {reason(error)}")
            failed = True
        else:
            for name, text in hashes:
                say(format_line(text, name))
    if failed:
        raise typer.Exit(1)


def say(line: str) -> None:
    """Print a line and flush it, because the next file may take long."""
    print(visible(line, sys.stdout), flush=True)  # noqa: T201


def complain(text: str) -> None:
    """Print an error or a warning on stderr."""
    typer.echo(visible(f"mmhash: {text}", sys.stderr), err=True)
