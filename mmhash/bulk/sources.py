"""What is to be hashed in bulk: a folder, a Parquet file or a list, cut into shards."""

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

# A shard is what a kill may lose of each process's work: some 20 ms of it. A file that is larger is
# a shard by itself.
SHARD_ITEMS = 1024
SHARD_BYTES = 64 << 20

MAX_PATH = 4096
PARQUET_MAGIC = b"PAR1"
# Rows that are read at once, for a row group may hold more than memory.
ROWS_READ = 64


class Source(NamedTuple):
    """All that a run hashes: its shards come while it is looked through."""

    names: Literal["path", "row"]
    shards: Iterator[Shard]


def read_source(name: str, column: str | None) -> Source:
    """What a name given by the user stands for: a folder, a Parquet file or a list of paths."""
    with _unreadable(name):
        if name != STDIN and Path(name).is_dir():
            found: Iterable[tuple[str, os.stat_result | None]] = _walk(name)
        elif name != STDIN and _is_parquet(name):
            return _read_parquet(name, column)
        else:
            found = map(_look_up, _read_list(name))
    if column is not None:
        raise InputValueError(f"{name} is no Parquet file: do not give --column")
    return Source("path", _of_files(found))


@contextmanager
def _unreadable(name: str) -> Iterator[None]:
    """Say which source it is that cannot be read."""
    try:
        yield
    except OSError as error:
        raise InputValueError(f"{printable(name)}: {reason(error)}") from error


def _walk(folder: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """The regular files below a folder, in the order of their names, folder by folder.

    What cannot be looked at stands there without a status: the worker says why.
    """
    try:
        waiting = _entries(folder)
    except OSError:
        yield folder, None
        return
    while waiting:
        entry = waiting.pop()
        try:
            if entry.is_dir(follow_symlinks=False):
                waiting += _entries(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path, entry.stat(follow_symlinks=False)
        except OSError:
            yield entry.path, None


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What lies in a folder, the last first."""
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
            if path := line.rstrip(b"\n"):
                yield os.fsdecode(path)


def _look_up(path: str) -> tuple[str, os.stat_result | None]:
    try:
        return path, Path(path).stat()
    except (OSError, ValueError):
        return path, None  # the worker says why


def _of_files(found: Iterable[tuple[str, os.stat_result | None]]) -> Iterator[Shard]:
    paths: list[str] = []
    statuses: list[os.stat_result | None] = []
    nbytes = 0
    for path, status in found:
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
    """Short enough for the name of a file."""
    return blake3(b"".join(parts)).hexdigest(length=16)


def _is_parquet(name: str) -> bool:
    with open_file(name) as file:
        return file.peek(len(PARQUET_MAGIC)).startswith(PARQUET_MAGIC)


def _read_parquet(name: str, column: str | None) -> Source:
    try:
        file = pq.ParquetFile(name)
    except pa.ArrowException as error:
        raise InputValueError(f"{name}: not a Parquet file: {error}") from error
    with file:
        kinds = {of.name: content_kind(of.type) for of in file.schema_arrow}
        kind = kinds.get(column or "")
        if kind is None:
            fit = ", ".join(name for name, kind in kinds.items() if kind) or "there is none"
            raise InputValueError(f"{name}: name a column of bytes or of paths by --column: {fit}")
        if kind == "path":
            table = file.read([column], use_threads=False)
            found = (_look_up(path or "") for path in table.column(0).to_pylist())
            return Source("path", _of_files(found))
        return Source("row", _of_rows(name, str(column), file.metadata))


def content_kind(of: Any) -> Literal["path", "bytes"] | None:
    """What the values of a column of this type are: names of files, or contents."""
    is_a = pa.types
    if is_a.is_string(of) or is_a.is_large_string(of):
        return "path"
    if is_a.is_binary(of) or is_a.is_large_binary(of) or is_a.is_fixed_size_binary(of):
        return "bytes"
    return None


def _of_rows(name: str, column: str, metadata: Any) -> Iterator[Shard]:
    """A shard is a row group: no less of a Parquet file can be found without reading it."""
    status = Path(name).stat()
    size_and_time = struct.pack("<Qq", status.st_size, status.st_mtime_ns)
    identity = _identity(size_and_time, field(os.fsencode(name)), column.encode())
    at = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = map(group.column, range(group.num_columns))
        (nbytes,) = (of.total_uncompressed_size for of in chunks if of.path_in_schema == column)
        rows = range(at, at + group.num_rows)
        hash_group = partial(
            hash_row_group, name=name, column=column, number=number, count=len(rows)
        )
        yield Shard(rows, nbytes, identity, hash_group)
        at += group.num_rows


def hash_row_group(
    options: Options, threads: int, *, name: str, column: str, number: int, count: int
) -> list[Row]:
    """The rows of a row group of a Parquet file; where it is damaged, its rest says so."""
    rows: list[Row] = []
    try:
        with pq.ParquetFile(name) as file:
            for batch in file.iter_batches(ROWS_READ, [number], [column], use_threads=False):
                rows += hash_values(batch.column(0), options, threads)
    except (OSError, pa.ArrowException) as error:
        rows += [failed(error, options)] * (count - len(rows))
    return rows
