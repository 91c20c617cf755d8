"""The source of a bulk run: a folder, a Parquet file or a list, cut into shards."""

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from mmhash.bulk.work import Options, Row, Shard, failed, hash_files, hash_values
from mmhash.errors import InputValueError
from mmhash.fields import field
from mmhash.io.files import open_file
from mmhash.io.names import STDIN, printable, reason

# A killed run loses one shard of each process: about 20 ms of work. A larger file is a shard of its
# own.
SHARD_ITEMS = 1024
SHARD_BYTES = 64 << 20

MAX_PATH = 4096
PARQUET_MAGIC = b"PAR1"
# Rows that are read at once, because a row group may be larger than memory.
ROWS_READ = 64


class Source(NamedTuple):
    """Everything that a run hashes; the shards are listed while others are hashed."""

    names: Literal["path", "row"]
    shards: Iterator[Shard]


def read_source(name: str, column: str | None) -> Source:
    """Return the source with a name given by the user: a folder, a Parquet file or a list."""
    with _unreadable(name):
        if name != STDIN and Path(name).is_dir():
            files: Iterable[tuple[str, os.stat_result | None]] = _walk(name)
        elif name != STDIN and _is_parquet(name):
            return _read_parquet(name, column)
        else:
            files = map(_look_up, _read_list(name))
    if column is not None:
        raise InputValueError(f"{name} is no Parquet file: do not give --column")
    return Source("path", _of_files(files))


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
    except OSError:
        yield folder, None
        return
    while stack:
        entry = stack.pop()
        try:
            if entry.is_dir(follow_symlinks=False):
                stack += _entries(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path, entry.stat(follow_symlinks=False)
        except OSError:
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


def _look_up(path: str) -> tuple[str, os.stat_result | None]:
    try:
        return path, Path(path).stat()
    except (OSError, ValueError):
        return path, None  # the worker reports the reason


def _of_files(files: Iterable[tuple[str, os.stat_result | None]]) -> Iterator[Shard]:
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
    identity = _identity(struct.pack(f"<{len(numbers)}q", *numbers), *encoded)
    names = [path.decode(errors="replace") for path in encoded]
    return Shard(names, nbytes, identity, partial(hash_files, tuple(paths)))


def _identity(*parts: bytes) -> str:
    """Return a hash that is short enough for the name of a file."""
    return blake3(b"".join(parts)).hexdigest(length=16)


def _is_parquet(name: str) -> bool:
    if not Path(name).is_file():  # a pipe is read only once
        return False
    with open_file(name) as file:
        return file.peek(len(PARQUET_MAGIC)).startswith(PARQUET_MAGIC)


def _read_parquet(name: str, column: str | None) -> Source:
    try:
        return _open_parquet(name, column)
    except pa.ArrowException as error:
        raise InputValueError(f"{name}: not a Parquet file, or a damaged one: {error}") from error


def _open_parquet(name: str, column: str | None) -> Source:
    with pq.ParquetFile(name) as file:
        kinds = {field.name: content_kind(field.type) for field in file.schema_arrow}
        kind = kinds.get(column or "")
        if kind is None:
            usable = ", ".join(name for name, kind in kinds.items() if kind) or "there is none"
            raise InputValueError(
                f"{name}: name a column of bytes or of paths with --column: {usable}"
            )
        paths = [one.path for one in file.schema]
        if paths.count(column) != 1:  # two of one name, or a member of a struct such as this
            raise InputValueError(
                f"{name}: the name of column {column!r} is not that of one column"
            )
        if kind == "path":
            values = file.read([column], use_threads=False).column(0)
            # As bytes: a writer may have stored names that are not UTF-8.
            names = values.cast(pa.large_binary()).to_pylist()
            return Source("path", _of_files(_look_up(os.fsdecode(path or b"")) for path in names))
        return Source("row", _of_rows(name, str(column), file.metadata))


def content_kind(column_type: Any) -> Literal["path", "bytes"] | None:
    """Return the kind of the values of a column with this type: names of files, or contents."""
    if pa.types.is_string(column_type) or pa.types.is_large_string(column_type):
        return "path"
    is_binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return "bytes" if any(is_kind(column_type) for is_kind in is_binary) else None


def _of_rows(name: str, column: str, metadata: Any) -> Iterator[Shard]:
    """Yield each row group as a shard: smaller parts cannot be located without reading it."""
    status = Path(name).stat()
    size_and_time = struct.pack("<Qq", status.st_size, status.st_mtime_ns)
    identity = _identity(size_and_time, field(os.fsencode(name)), column.encode())
    first_row = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = map(group.column, range(group.num_columns))
        (nbytes,) = (
            chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == column
        )
        rows = range(first_row, first_row + group.num_rows)
        hash_group = partial(
            hash_row_group, name=name, column=column, number=number, count=len(rows)
        )
        yield Shard(rows, nbytes, identity, hash_group)
        first_row += group.num_rows


def hash_row_group(
    options: Options, threads: int, *, name: str, column: str, number: int, count: int
) -> list[Row]:
    """Return the rows of a row group; if it is damaged, the remaining rows have the error."""
    rows: list[Row] = []
    try:
        with pq.ParquetFile(name) as file:
            for batch in file.iter_batches(ROWS_READ, [number], [column], use_threads=False):
                rows += hash_values(batch.column(0), options, threads)
    except (OSError, pa.ArrowException) as error:
        rows += [failed(error, options)] * (count - len(rows))
    return rows
