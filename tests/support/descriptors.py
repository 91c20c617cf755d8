"""Counts the open files of this process, for tests that code leaves none open."""

from contextlib import suppress
from pathlib import Path


def descriptors_below(prefix: str) -> int:
    """Count the descriptors of files below a prefix. Other tests open and close other files."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found += str(descriptor.readlink()).startswith(prefix)
    return found
