"""The digest of a file, a pipe or standard input, of which no more than a slice is held."""

import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path

from mmhash.cpu import Hasher
from mmhash.io.names import STDIN

# Of a mapped file: work enough for all cores, and done before a bar or Ctrl-C seems stuck.
SLICE = 64 << 20
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO or pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

# Of what must be read into memory: from here on a second thread gains.
PIECE = 1 << 20


def hash_file(
    file: BufferedReader,
    hasher: Hasher,
    *,
    is_mapped: bool = True,
    advance: Callable[[int], object] = lambda _: None,
) -> int:
    """Hash a file from its beginning to its end, and return its length.

    `advance` is called with the length of each piece that is done.
    """
    nbytes = 0
    for piece in _pieces(file, map_file(file) if is_mapped else None):
        hasher.update(piece)
        nbytes += len(piece)
        advance(len(piece))
    return nbytes


def open_file(name: str) -> BufferedReader:
    """The file of that name, or standard input."""
    if name == STDIN:
        return open(0, "rb", closefd=False)
    return Path(name).open("rb")


def open_regular_file(name: str) -> BufferedReader:
    """The file of that name, or standard input, if that is a regular file."""
    if name == STDIN:
        file = open_file(name)
    else:
        _check_regular(Path(name).stat())  # to open a device may do something already
        # It may be another one by now: never wait for a FIFO's writer.
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
    """The file's bytes where they lie; None if it is empty, a pipe, a device or made by the kernel.

    As with b3sum, a file that is cut short while it is mapped ends the process.
    """
    try:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return None


def _pieces(file: BufferedReader, mapped: memoryview | None) -> Iterator[memoryview]:
    if mapped is not None:
        for at in range(0, len(mapped), SLICE):
            yield mapped[at : at + SLICE]
        return
    buffer = memoryview(bytearray(PIECE))
    while count := file.readinto(buffer):
        yield buffer[:count]
