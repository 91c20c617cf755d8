"""A bar on stderr, for a person who waits: only on a terminal, only for a file that takes long."""

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

# Less is hashed before a bar could be read.
LONG = 256 << 20


@contextmanager
def bar(name: str, size: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Give the function that takes how many bytes more are done. A pipe has size 0."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=console.is_dumb_terminal,
        transient=True,
    )
    task = progress.add_task(Path(name).name, total=size or None)

    def advance(count: int) -> None:
        progress.advance(task, count)
        if max(size, progress.tasks[task].completed) >= LONG:
            progress.start()  # once: later calls do nothing

    try:
        advance(0)
        yield advance
    finally:
        progress.stop()
