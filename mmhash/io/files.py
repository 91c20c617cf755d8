"""The digest of a file, a pipe or standard input, with at most one piece of it in memory."""

import errno
import mmap
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from mmhash.cpu import Hasher
from mmhash.io.names import STDIN
from mmhash.states import State

# A piece of a mapped file: enough work for all cores, and short enough for Ctrl-C.
SLICE = 64 << 20
# A piece that is read into memory: from this size on a second thread gains.
PIECE = 1 << 20


def hash_file(file: BufferedReader, hasher: Hasher | State, *, is_mapped: bool = True) -> int:
    """Hash a file from its beginning to its end, and return its length."""
    nbytes = 0
    for piece in _pieces(file, map_file(file) if is_mapped else None):
        hasher.update(piece)
        nbytes += len(piece)
    return nbytes


def open_file(name: str) -> BufferedReader:
    """Open the file with that name, or standard input for `-`."""
    if name == STDIN:
        return open(0, "rb", closefd=False)
    if not name:  # as a Path it is the working directory
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return Path(name).open("rb")


def map_file(file: BufferedReader) -> memoryview | None:
    """Map a file; None if it is empty, a pipe, a device or a file of the kernel such as in /proc.

    As with b3sum, truncating a file while it is mapped ends the process.
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
