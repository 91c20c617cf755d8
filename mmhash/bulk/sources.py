"""The source of a bulk run: a folder, a list of paths, or a column of a Parquet file.

Only the module for Parquet files imports pyarrow, which child processes load meanwhile.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

from mmhash.bulk.shards import File, Shard, look_up, shards_of_files
from mmhash.errors import InputValueError, is_shortage
from mmhash.io.files import open_file
from mmhash.io.names import STDIN, printable, reason

MAX_PATH = 4096
PARQUET_MAGIC = b"PAR1"


def read_source(name: str, column: str | None) -> Iterator[Shard]:
    """Return the shards of a folder, a Parquet file or a list; shards are listed on demand."""
    with _unreadable(name):
        if name not in {STDIN, ""} and Path(name).is_dir():  # an empty path would be "."
            files: Iterable[File] = _walk(name)
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


def _walk(folder: str) -> Iterator[File]:
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


def _is_parquet(name: str) -> bool:
    if not Path(name).is_file():  # a pipe is read only once
        return False
    with open_file(name) as file:
        return file.peek(len(PARQUET_MAGIC)).startswith(PARQUET_MAGIC)
