"""Rows as pyarrow's tables and Parquet files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from mmhash.bulk.items import Counts, Row

ABOUT = b"mmhash"
_INTEGERS = {"row", "nbytes"}


def write_rows(
    path: Path, rows: Sequence[Row], columns: Sequence[str], about: dict[str, str]
) -> None:
    """Write rows as a Parquet file that also stores the parameters of its run."""
    table = table_of(rows, columns).replace_schema_metadata({ABOUT: json.dumps(about)})
    pq.write_table(table, path, compression="zstd")


def read_about(path: Path) -> tuple[dict[str, str], Counts]:
    """Return the parameters of the run that wrote a file, and its row counts."""
    metadata = pq.read_metadata(path)
    about: dict[str, str] = json.loads((metadata.metadata or {}).get(ABOUT, "{}"))
    errors = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups if about else 0)):
        errors += group.num_rows - group.column(group.num_columns - 1).statistics.null_count
    return about, Counts(metadata.num_rows, errors)


def table_of(rows: Sequence[Row], columns: Sequence[str]) -> Any:
    """Return rows as a pyarrow table.

    The rows go through JSON, because `pa.array` imports pandas if it is installed. The import takes
    longer than hashing a small folder.
    """
    schema = pa.schema(
        [(name, pa.int64() if name in _INTEGERS else pa.string()) for name in columns]
    )
    if not rows:
        return schema.empty_table()
    lines = "\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows)
    return pj.read_json(
        pa.BufferReader(lines.encode()),
        pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        pj.ParseOptions(explicit_schema=schema),
    )
