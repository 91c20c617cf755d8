"""Bars on stderr, for a person who waits: only on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from mmhash.cli.terminal import visible

# Less is hashed before a bar could be read.
LONG = 256 << 20


def is_watched(*, quiet: bool) -> bool:
    """Whether anybody would see a bar, and wants to."""
    return not quiet and sys.stderr is not None and sys.stderr.isatty()


def bytes_progress(what: TextColumn) -> Progress:
    """A bar of bytes behind what it is said to be; it shows nothing before it is started."""
    console = Console(stderr=True)
    return Progress(
        what,
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=console.is_dumb_terminal,
        transient=True,
    )


@contextmanager
def bar(name: str, size: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Give the function that takes how many bytes more are done, of a file that takes long.

    A pipe has size 0.
    """
    if not is_watched(quiet=quiet):
        yield lambda _: None
        return
    progress = bytes_progress(TextColumn("{task.description}", markup=False))
    task = progress.add_task(visible(Path(name).name, sys.stderr), total=size or None)

    def advance(count: int) -> None:
        progress.advance(task, count)
        if max(size, progress.tasks[task].completed) >= LONG:
            progress.start()  # once: later calls do nothing

    try:
        advance(0)
        yield advance
    finally:
        progress.stop()
