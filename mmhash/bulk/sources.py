"""The source of a bulk run: a folder, a list of paths, or a column of a Parquet file.

Only the module for Parquet files imports pyarrow, which child processes load meanwhile.
"""

import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from mmhash.bulk.items import BulkOptions, Row, hash_files
from mmhash.errors import InputValueError, is_shortage
from mmhash.io.files import open_file
from mmhash.io.names import STDIN, printable, reason

# A killed run loses at most one shard per process. A larger file is a shard of its own.
SHARD_ITEMS = 1024
SHARD_BYTES = 64 << 20

MAX_PATH = 4096
PARQUET_MAGIC = b"PAR1"

_File = tuple[str, os.stat_result | None]


class Shard(NamedTuple):
    """Items that one process hashes together. `identity` changes if any of the items changes."""

    names: Sequence[str] | range
    nbytes: int
    identity: str
    hash: Callable[[BulkOptions], list[Row]]


def read_source(name: str, column: str | None) -> Iterator[Shard]:
    """Return the shards of a folder, a Parquet file or a list; shards are listed on demand."""
    with _unreadable(name):
        if name not in {STDIN, ""} and Path(name).is_dir():  # an empty path would be "."
            files: Iterable[_File] = _walk(name)
        elif name != STDIN and _is_parquet(name):
            from mmhash.bulk.rows import read_parquet  # noqa: PLC0415  (pyarrow)

            return read_parquet(name, column)
        else:
            files = map(look_up, _read_list(name))
    if column is not None:
        raise InputValueError(f"{name} is no Parquet file: do not give --column")
    return shards_of_files(files)


@contextmanager
def _unreadable(name: str) -> Iterator[None]:
    """Raise an error that names the source if it cannot be read."""
    try:
        yield
    except OSError as error:
        raise InputValueError(f"{printable(name)}: {reason(error)}") from error


def _walk(folder: str) -> Iterator[_File]:
    """Yield the regular files below a folder, sorted by name within each folder.

    A path that cannot be read has no status; its row gets the reason.
    """
    try:
        stack = _entries(folder)
    except OSError as error:
        if is_shortage(error):
            raise
        yield folder, None
        return
    while stack:
        entry = stack.pop()
        try:
            if entry.is_dir(follow_symlinks=False):
                stack += _entries(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path, entry.stat(follow_symlinks=False)
        except OSError as error:
            if is_shortage(error):
                raise
            yield entry.path, None


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder in reverse order of their names."""
    with os.scandir(folder) as entries:
        return sorted(entries, key=attrgetter("name"), reverse=True)


def _read_list(name: str) -> Iterator[str]:
    with _unreadable(name), open_file(name) as file:
        number = 0
        while line := file.readline(MAX_PATH + 1):
            number += 1
            if len(line) > MAX_PATH or b"\0" in line:
                raise InputValueError(
                    f"{name}: not a list of paths, one per line: line {number} is over {MAX_PATH}"
                    " bytes long, or has a zero byte"
                )
            if path := line.rstrip(b"\n"):
                yield os.fsdecode(path)


def look_up(path: str) -> _File:
    """Return a path and the status of its file; None for the status if it is not a regular file."""
    try:
        status = os.stat(path)  # noqa: PTH116  (Path("") is the folder ".")
    except (OSError, ValueError):
        return path, None  # its row gets the reason
    return path, status if stat.S_ISREG(status.st_mode) else None


def shards_of_files(files: Iterable[_File]) -> Iterator[Shard]:
    """Yield the shards of files, given their paths and statuses."""
    shard: list[_File] = []
    nbytes = 0
    for path, status in files:
        size = status.st_size if status else 0
        if shard and (len(shard) == SHARD_ITEMS or nbytes + size > SHARD_BYTES):
            yield _shard_of(shard, nbytes)
            shard, nbytes = [], 0
        shard.append((path, status))
        nbytes += size
    if shard:
        yield _shard_of(shard, nbytes)


def _shard_of(files: list[_File], nbytes: int) -> Shard:
    state = blake3()
    for path, status in files:
        size, time = (status.st_size, status.st_mtime_ns) if status else (-1, -1)
        encoded = os.fsencode(path)
        state.update(struct.pack("<qqq", len(encoded), size, time) + encoded)
    paths = tuple(path for path, _ in files)
    names = [os.fsencode(path).decode(errors="replace") for path in paths]
    return Shard(names, nbytes, state.hexdigest(length=16), partial(hash_files, paths))


def _is_parquet(name: str) -> bool:
    if not Path(name).is_file():  # a pipe is read only once
        return False
    with open_file(name) as file:
        return file.peek(len(PARQUET_MAGIC)).startswith(PARQUET_MAGIC)
