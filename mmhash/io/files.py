"""The digest of a file, a pipe or standard input, with at most one piece of it in memory."""

import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path

from mmhash.cpu import Hasher
from mmhash.io.names import STDIN
from mmhash.states import State

# A piece of a mapped file: enough work for all cores, and short enough for progress and Ctrl-C.
SLICE = 64 << 20
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO or pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

# A piece that is read into memory: from this size on a second thread gains.
PIECE = 1 << 20


def hash_file(
    file: BufferedReader,
    hasher: Hasher | State,
    *,
    is_mapped: bool = True,
    advance: Callable[[int], object] = lambda _: None,
) -> int:
    """Hash a file from its beginning to its end, and return its length.

    `advance` is called with the length of each piece after it is hashed.
    """
    nbytes = 0
    for piece in _pieces(file, map_file(file) if is_mapped else None):
        hasher.update(piece)
        nbytes += len(piece)
        advance(len(piece))
    return nbytes


def open_file(name: str) -> BufferedReader:
    """Open the file with that name, or standard input for `-`."""
    if name == STDIN:
        return open(0, "rb", closefd=False)
    if not name:  # as a Path it is the working directory
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return Path(name).open("rb")


def open_regular_file(name: str) -> BufferedReader:
    """Open the file with that name, or standard input for `-`, if it is a regular file."""
    if name == STDIN:
        file = open_file(name)
    else:
        _check_regular(Path(name).stat())  # opening a device may have an effect
        # The name may mean another file since the check: never wait for a FIFO's writer.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
        file = os.fdopen(os.open(name, flags | os.O_CLOEXEC), "rb")
    try:
        _check_regular(os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


def _check_regular(facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        kind = _KINDS.get(stat.S_IFMT(facts.st_mode), "special")
        raise OSError(errno.EINVAL, f"not a regular file: {kind}")


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
