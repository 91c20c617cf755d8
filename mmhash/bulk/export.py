"""A result as CSV or JSON lines, from the Parquet file that each run writes and can check."""

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from mmhash.bulk.checked import remove, rename_on_disk
from mmhash.errors import InputValueError

PARQUET = ".parquet"


def _write_csv(file: TextIO, rows: Iterable[dict[str, Any]], columns: list[str]) -> None:
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _write_json_lines(file: TextIO, rows: Iterable[dict[str, Any]], _columns: list[str]) -> None:
    file.writelines(json.dumps(row) + "\n" for row in rows)


_WRITERS: dict[str, Callable[[TextIO, Iterable[dict[str, Any]], list[str]], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
}
SUFFIXES = (PARQUET, *_WRITERS)


def parquet_path(out: Path) -> Path:
    """Return the Parquet file of a run whose result is to be `out`, and check its suffix."""
    suffix = out.suffix.lower()
    if suffix == PARQUET:
        return out
    if suffix not in _WRITERS:
        raise InputValueError(f"{out}: the name of a result ends with {', '.join(SUFFIXES)}")
    parquet = out.with_name(out.name + PARQUET)
    if out.exists() and not parquet.exists():
        raise InputValueError(f"{out} exists: remove it, or give another --out")
    return parquet


def export(parquet: Path, out: Path) -> None:
    """Write a result in the format of the suffix of `out`, and remove the Parquet file."""
    if parquet == out:
        return
    import pyarrow.parquet as pq  # noqa: PLC0415  (imported by the run)

    temporary = out.with_name(out.name + ".tmp")
    remove(temporary)  # a link would name another file
    with (
        pq.ParquetFile(parquet) as result,
        temporary.open("x", encoding="utf-8", newline="") as file,
    ):
        columns = result.schema_arrow.names
        rows = (row for batch in result.iter_batches() for row in batch.to_pylist())
        _WRITERS[out.suffix.lower()](file, rows, columns)
    rename_on_disk(temporary, out)
    parquet.unlink()
