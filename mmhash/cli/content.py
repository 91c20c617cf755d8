"""The digest of a file, a pipe or standard input, of which no more than a slice is held."""

import mmap
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from mmhash.cli.options import STDIN
from mmhash.cli.progress import bar
from mmhash.cpu import Hasher, cpu_count
from mmhash.digest import Digest

# Of a mapped file: work enough for all cores, and done before a bar or Ctrl-C seems stuck.
SLICE = 64 << 20
# Of what must be read into memory: from here on a second thread gains.
PIECE = 1 << 20


def hash_file(name: str, algorithm: str, threads: int | None, *, quiet: bool) -> tuple[Digest, int]:
    """The digest of a file's bytes, and how many they are."""
    hasher = Hasher(algorithm, threads=threads or cpu_count())
    nbytes = 0
    with open_file(name) as file:
        size = os.fstat(file.fileno()).st_size
        with bar(name, size, quiet=quiet) as advance:
            for part in _parts(file, mapped=None if name == STDIN else map_file(file)):
                hasher.update(part)
                nbytes += len(part)
                advance(len(part))
    return Digest(hasher.name, hasher.digest()), nbytes


def open_file(name: str) -> BufferedReader:
    """The file of that name, or standard input."""
    if name == STDIN:
        return open(0, "rb", closefd=False)
    return Path(name).open("rb")


def map_file(file: BufferedReader) -> memoryview | None:
    """The file's bytes where they lie; None if it is empty, a pipe, a device or made by the kernel.

    As with b3sum, a file that is cut short while it is mapped ends the process.
    """
    try:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return None


def _parts(file: BufferedReader, mapped: memoryview | None) -> Iterator[memoryview]:
    if mapped is not None:
        for at in range(0, len(mapped), SLICE):
            yield mapped[at : at + SLICE]
        return
    buffer = memoryview(bytearray(PIECE))
    while count := file.readinto(buffer):
        yield buffer[:count]
