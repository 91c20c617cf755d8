"""The rows or paths in a column of a Parquet file, cut into shards."""

import os
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from mmhash.bulk.items import BulkOptions, Row, failed, hash_values
from mmhash.bulk.shards import Shard, look_up, shards_of_files
from mmhash.errors import InputValueError, is_shortage

# How many rows are read at once: a row group may be larger than memory.
ROWS_READ = 64


def content_kind(column_type: Any) -> Literal["path", "bytes"] | None:
    """Return what a column of this type holds: file names or contents."""
    if pa.types.is_string(column_type) or pa.types.is_large_string(column_type):
        return "path"
    is_binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return "bytes" if any(is_kind(column_type) for is_kind in is_binary) else None


def read_parquet(name: str, column: str | None) -> Iterator[Shard]:
    """Return the shards of a column of a Parquet file."""
    try:
        with pq.ParquetFile(name) as file:
            kinds = {field.name: content_kind(field.type) for field in file.schema_arrow}
            kind = kinds.get(column or "")
            if kind is None or column is None:
                usable = ", ".join(name for name, kind in kinds.items() if kind) or "there is none"
                raise InputValueError(
                    f"{name}: name a column of bytes or of paths with --column: {usable}"
                )
            if [one.path for one in file.schema].count(column) != 1:
                # Two columns with the same name, or a member of a struct with this name.
                raise InputValueError(f"{name}: there is not exactly one column named {column!r}")
            if kind == "bytes":
                return _row_groups(name, column, file.metadata)
            # Read names as bytes: some writers store names that are not UTF-8.
            values = file.read([column], use_threads=False).column(0).cast(pa.large_binary())
            return shards_of_files(look_up(os.fsdecode(path or b"")) for path in values.to_pylist())
    except pa.ArrowException as error:
        raise InputValueError(f"{name}: not a Parquet file, or a damaged one: {error}") from error


def hash_row_group(
    options: BulkOptions, *, name: str, column: str, number: int, count: int
) -> list[Row]:
    """Return the row of each value in a row group. Values after damage get the error."""
    rows: list[Row] = []
    try:
        with pq.ParquetFile(name) as file:
            for batch in file.iter_batches(ROWS_READ, [number], [column], use_threads=False):
                rows += hash_values(batch.column(0), options)
    except (OSError, pa.ArrowException) as error:
        if is_shortage(error):
            raise
        rows += [failed(error, options)] * (count - len(rows))
    return rows


def _row_groups(name: str, column: str, metadata: Any) -> Iterator[Shard]:
    """Yield each row group as a shard: locating anything smaller means reading the group."""
    status = Path(name).stat()
    size_and_time = struct.pack("<Qq", status.st_size, status.st_mtime_ns)
    identity = blake3(size_and_time).hexdigest(length=16)
    first = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = map(group.column, range(group.num_columns))
        (nbytes,) = (
            chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == column
        )
        rows = range(first, first + group.num_rows)
        hash_group = partial(
            hash_row_group, name=name, column=column, number=number, count=len(rows)
        )
        yield Shard(rows, nbytes, identity, hash_group)
        first = rows.stop
