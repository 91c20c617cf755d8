"""Rows as Arrow tables, and the result as a Parquet file."""

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mmhash.bulk.work import Row
from mmhash.errors import InputValueError, MMHashError

ABOUT = b"mmhash"
# Shards in a row group of the result.
JOINED = 64

_INTEGERS = {"row", "nbytes"}


def table_of(rows: Sequence[Row], schema: Any) -> Any:
    """Return rows as a pyarrow table."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [
        _array_of(values, is_text=pa.types.is_string(field.type))
        for values, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array_of(values: Sequence[Any], *, is_text: bool) -> Any:
    """Return values as a pyarrow array of texts, or of integers; None is null.

    From buffers, because `pa.array` imports pandas, if it is installed: 0.5 s.
    """
    count = len(values)
    mask = None
    if None in values:
        bits = "".join("01"[value is not None] for value in reversed(values))
        mask = pa.py_buffer(int(bits, 2).to_bytes(-(-count // 8), "little"))
    if not is_text:
        numbers = array("q", (0 if value is None else value for value in values))
        return pa.Array.from_buffers(pa.int64(), count, [mask, pa.py_buffer(numbers)])
    texts = [b"" if value is None else value.encode() for value in values]
    ends = array("i", accumulate(map(len, texts), initial=0))
    return pa.StringArray.from_buffers(
        count, pa.py_buffer(ends), pa.py_buffer(b"".join(texts)), mask
    )


def schema_of(columns: Sequence[str]) -> Any:
    """Return the schema of a result with these columns."""
    return pa.schema([(name, pa.int64() if name in _INTEGERS else pa.string()) for name in columns])


def pack(rows: Sequence[Row], columns: Sequence[str]) -> memoryview:
    """Return rows as the content of an Arrow file."""
    schema = schema_of(columns)
    content = pa.BufferOutputStream()
    with pa.ipc.new_file(content, schema) as writer:
        writer.write_table(table_of(rows, schema))
    return memoryview(content.getvalue())


def write_result(
    file: BinaryIO, packed: Iterable[memoryview], columns: Sequence[str], about: dict[str, str]
) -> None:
    """Write packed rows as a Parquet file, with the parameters of their run."""
    schema = schema_of(columns).with_metadata({ABOUT: json.dumps(about)})
    shards = iter(packed)
    with pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        use_dictionary=["kind", "error"],
        write_page_checksum=True,
    ) as writer:
        while group := [_unpack(shard) for shard in islice(shards, JOINED)]:
            writer.write_table(pa.concat_tables(group))


def _unpack(content: memoryview) -> Any:
    return pa.ipc.open_file(pa.py_buffer(content)).read_all()


def read_about(out: Path) -> dict[str, str]:
    """Return the parameters of the run whose result this is."""
    try:
        metadata = pq.read_schema(out).metadata if out.is_file() else {}  # a FIFO would never end
        about: dict[str, str] = json.loads(metadata[ABOUT])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputValueError(
            f"{out} exists and is no result of bulk, or a damaged one: give another --out"
        ) from error
    return about


def check_pages(out: Path) -> None:
    """Read a result, and raise an error if a page of it is damaged."""
    with _readable(out), pq.ParquetFile(out, page_checksum_verification=True) as file:
        for _ in file.iter_batches():
            pass


def count_results(out: Path) -> tuple[int, int]:
    """Return the numbers of items and of errors in a result."""
    with _readable(out), pq.ParquetFile(out) as file:
        errors = sum(
            len(batch) - batch.column(0).null_count
            for batch in file.iter_batches(columns=["error"])
        )
        return file.metadata.num_rows, errors


@contextmanager
def _readable(out: Path) -> Iterator[None]:
    """Raise an error that says that a result is damaged if it cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        first_line = str(error).partition("\n")[0]
        raise MMHashError(
            f"{out} is damaged: remove it and run the same command again ({first_line})"
        ) from error
