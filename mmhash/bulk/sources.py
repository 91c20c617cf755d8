"""The source of a bulk run: a folder, a Parquet file or a list, cut into shards.

Only the module for Parquet files imports pyarrow, so that hashing begins 0.1 s earlier.
"""

import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Literal, NamedTuple

from blake3 import blake3

from mmhash.bulk.work import Shard, hash_files
from mmhash.errors import InputValueError, is_shortage
from mmhash.io.files import open_file
from mmhash.io.names import STDIN, printable, reason

# A killed run loses one shard of each process: about 20 ms of work. A larger file is a shard of its
# own.
SHARD_ITEMS = 1024
SHARD_BYTES = 64 << 20

MAX_PATH = 4096
PARQUET_MAGIC = b"PAR1"


class Source(NamedTuple):
    """Everything that a run hashes; the shards are listed while others are hashed."""

    names: Literal["path", "row"]
    shards: Iterator[Shard]


def read_source(name: str, column: str | None) -> Source:
    """Return the source with a name given by the user: a folder, a Parquet file or a list."""
    with _unreadable(name):
        if name not in {STDIN, ""} and Path(name).is_dir():  # an empty path would be "."
            files: Iterable[tuple[str, os.stat_result | None]] = _walk(name)
        elif name != STDIN and _is_parquet(name):
            from mmhash.bulk.rows import read_parquet  # noqa: PLC0415  (as above)

            return read_parquet(name, column)
        else:
            files = map(look_up, _read_list(name))
    if column is not None:
        raise InputValueError(f"{name} is no Parquet file: do not give --column")
    return Source("path", shards_of_files(files))


@contextmanager
def _unreadable(name: str) -> Iterator[None]:
    """Raise an error that names the source if it cannot be read."""
    try:
        yield
    except OSError as error:
        raise InputValueError(f"{printable(name)}: {reason(error)}") from error


def _walk(folder: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield the regular files below a folder, each folder in the order of its names.

    A path that cannot be read has no status: the worker reports the reason.
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
            if len(line) > MAX_PATH:
                raise InputValueError(
                    f"{name}: not a list of paths: line {number} is over {MAX_PATH} bytes long"
                )
            if b"\0" in line:
                raise InputValueError(
                    f"{name}: not a list of paths, one per line: line {number} has a zero byte"
                )
            if path := line.rstrip(b"\n"):
                yield os.fsdecode(path)


def look_up(path: str) -> tuple[str, os.stat_result | None]:
    """Return a path and the status of its file, if it is one."""
    try:
        status = os.stat(path)  # noqa: PTH116  (Path("") is the folder ".")
    except (OSError, ValueError):
        return path, None  # the worker reports the reason
    return path, status if stat.S_ISREG(status.st_mode) else None


def shards_of_files(files: Iterable[tuple[str, os.stat_result | None]]) -> Iterator[Shard]:
    """Yield the shards of files with these paths and statuses."""
    paths: list[str] = []
    statuses: list[os.stat_result | None] = []
    nbytes = 0
    for path, status in files:
        size = status.st_size if status else 0
        if paths and (len(paths) == SHARD_ITEMS or nbytes + size > SHARD_BYTES):
            yield _shard(paths, statuses, nbytes)
            paths, statuses, nbytes = [], [], 0
        paths.append(path)
        statuses.append(status)
        nbytes += size
    if paths:
        yield _shard(paths, statuses, nbytes)


def _shard(paths: list[str], statuses: list[os.stat_result | None], nbytes: int) -> Shard:
    encoded = list(map(os.fsencode, paths))
    numbers = [len(path) for path in encoded]
    for status in statuses:
        numbers += (status.st_size, status.st_mtime_ns) if status else (-1, -1)
    identity = identity_of(struct.pack(f"<{len(numbers)}q", *numbers), *encoded)
    names = [path.decode(errors="replace") for path in encoded]
    return Shard(names, nbytes, identity, partial(hash_files, tuple(paths)))


def identity_of(*parts: bytes) -> str:
    """Return a hash that is short enough for the name of a file."""
    return blake3(b"".join(parts)).hexdigest(length=16)


def _is_parquet(name: str) -> bool:
    if not Path(name).is_file():  # a pipe is read only once
        return False
    with open_file(name) as file:
        return file.peek(len(PARQUET_MAGIC)).startswith(PARQUET_MAGIC)
