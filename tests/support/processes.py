"""The processes that others have started, by /proc."""

from contextlib import suppress
from pathlib import Path


def children_of(pid: int | str) -> list[int]:
    """Return the processes that all threads of a process have started, also those that exited."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += map(int, path.read_text().split())
    return found
