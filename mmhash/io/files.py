"""The digest of a file, a pipe or standard input, with at most one piece in memory."""

import errno
import mmap
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from mmhash.algorithms import ALGORITHM_SPECS, Algorithm
from mmhash.arguments import check_int
from mmhash.cpu import cpu_count
from mmhash.digest import Digest
from mmhash.io.names import STDIN

# The size of a mapped piece: enough work for all cores, and short enough for Ctrl-C.
SLICE = 64 << 20
# The size of a piece that is read into memory. For smaller pieces, a second thread would not pay.
PIECE = 1 << 20


def hash_file(
    file: BufferedReader, algorithm: Algorithm, threads: int | None = None
) -> tuple[Digest, int]:
    """Hash a file to its end, by default on all cores; return its digest and its length."""
    # A Hasher would import numpy, because it accepts any input. Files do not need numpy.
    threads = cpu_count() if threads is None else check_int("threads", threads, 1)
    state = ALGORITHM_SPECS[algorithm].new_state(threads)
    nbytes = 0
    for piece in _pieces(file):
        state.update(piece)
        nbytes += len(piece)
    return Digest(algorithm, state.digest()), nbytes


def open_file(name: str) -> BufferedReader:
    """Open the file with this name, or standard input for `-`."""
    if name == STDIN:
        return open(0, "rb", closefd=False)
    if not name:  # Path("") is the working directory
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return Path(name).open("rb")


def map_file(file: BufferedReader) -> memoryview | None:
    """Map a file. Return None for an empty file, a pipe, a device or a file of the kernel (/proc).

    As with b3sum, truncating a file while it is mapped kills the process.
    """
    try:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return None


def _pieces(file: BufferedReader) -> Iterator[memoryview]:
    # Standard input is read from its current position: an earlier program may have read a part.
    mapped = None if file.name == 0 else map_file(file)
    if mapped is not None:
        for start in range(0, len(mapped), SLICE):
            yield mapped[start : start + SLICE]
        return
    buffer = memoryview(bytearray(PIECE))
    while count := file.readinto(buffer):
        yield buffer[:count]
