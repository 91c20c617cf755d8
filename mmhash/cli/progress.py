"""Progress bars on stderr, only if it is a terminal: only then rich is imported (40 ms)."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


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
