"""The digest of a file, a pipe or standard input, with at most one piece in memory."""

import errno
import mmap
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from mmhash.cpu import Hasher
from mmhash.io.names import STDIN
from mmhash.states import State

# The size of a mapped piece: enough work for all cores, and short enough for Ctrl-C.
SLICE = 64 << 20
# The size of a piece that is read into memory; a second thread pays from this size on.
PIECE = 1 << 20


def hash_file(file: BufferedReader, hasher: Hasher | State, *, is_mapped: bool = True) -> int:
    """Hash a file from beginning to end, and return its length."""
    nbytes = 0
    for piece in _pieces(file, map_file(file) if is_mapped else None):
        hasher.update(piece)
        nbytes += len(piece)
    return nbytes


def open_file(name: str) -> BufferedReader:
    """Open the file with this name, or standard input for `-`."""
    if name == STDIN:
        return open(0, "rb", closefd=False)
    if not name:  # Path("") is the working directory
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return Path(name).open("rb")


def map_file(file: BufferedReader) -> memoryview | None:
    """Map a file; return None for an empty file, a pipe, a device or a kernel file as in /proc.

    As with b3sum, truncating a file while it is mapped kills the process.
    """
    try:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return None


def _pieces(file: BufferedReader, mapped: memoryview | None) -> Iterator[memoryview]:
    if mapped is not None:
        for start in range(0, len(mapped), SLICE):
            yield mapped[start : start + SLICE]
        return
    buffer = memoryview(bytearray(PIECE))
    while count := file.readinto(buffer):
        yield buffer[:count]
