"""Progress bars on stderr, only if it is a terminal: only then rich is imported (40 ms)."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mmhash.cli.terminal import visible

if TYPE_CHECKING:
    from rich.progress import Progress

# Smaller files are hashed before a user could read a bar.
LONG = 256 << 20


def is_watched(*, quiet: bool) -> bool:
    """Return True if stderr is a terminal and bars are not disabled."""
    return not quiet and sys.stderr is not None and sys.stderr.isatty()


def bytes_progress(what: str) -> "Progress":
    """Return a progress bar of bytes after the text `what`; it is hidden until it is started."""
    from rich.console import Console  # noqa: PLC0415  (as above)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    return Progress(
        TextColumn(what, markup=False),
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
    """Yield a function that adds a number of hashed bytes; show a bar for a long file.

    A pipe has size 0.
    """
    if not is_watched(quiet=quiet):
        yield lambda _: None
        return
    progress = bytes_progress("{task.description}")
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
