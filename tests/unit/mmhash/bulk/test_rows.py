"""The rows in a column of a Parquet file: a shard for each row group."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mmhash
from mmhash.bulk.items import BulkOptions, Row
from mmhash.bulk.sources import read_source


def rows_of(file: str) -> list[Row]:
    """Return the rows of the column data."""
    return [row for shard in read_source(file, "data") for row in shard.hash(BulkOptions())]


def test_a_row_group_is_a_shard(tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    values = [b"%d" % n for n in range(100)]
    values[7] = None  # type: ignore[call-overload]
    table = pa.table({"id": range(100), "data": pa.array(values, pa.large_binary())})
    pq.write_table(table, file, row_group_size=70)
    assert [shard.names for shard in read_source(file, "data")] == [range(70), range(70, 100)]
    found = rows_of(file)
    assert found[7][-1] == "InputValueError: the value is null"
    assert [row[3] for row in found if row[3]] == [mmhash.key(v).hex() for v in values if v]


def test_a_damaged_row_group_says_so_in_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    values = [os.urandom(4096) for _ in range(400)]
    pq.write_table(pa.table({"data": values}), file, row_group_size=200, use_dictionary=False)
    content = bytearray(file.read_bytes())
    content[1_000_000:1_300_000] = bytes(300_000)  # within the second
    file.write_bytes(content)
    found = rows_of(str(file))
    assert len(found) == 400
    assert all(row[-1] is None for row in found[:200])
    assert found[-1][-1] is not None
    assert found[-1][-1].startswith("OSError: ")


@pytest.mark.parametrize(
    "columns",
    [
        [("x", b"a"), ("x", b"b")],
        [("x", "a"), ("x", "b")],
        [("y", {"z": b"a"}), ("y.z", b"b")],
    ],
    ids=["bytes", "paths", "a member"],
)
def test_two_columns_of_one_name_are_refused(tmp_path: Path, columns: Any) -> None:
    names, values = zip(*columns, strict=True)
    arrays = [pa.array([value]) for value in values]
    pq.write_table(pa.Table.from_arrays(arrays, names=list(names)), tmp_path / "twice")
    with pytest.raises(mmhash.InputValueError, match="not exactly one column"):
        read_source(str(tmp_path / "twice"), columns[-1][0])


def test_a_damaged_column_of_paths_is_named(tmp_path: Path) -> None:
    path = tmp_path / "paths.parquet"
    table = pa.table({"p": pa.array(["a" * 50] * 999)})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    start = content.index(b"a" * 50) + 50
    content[start : start + 4] = b"\xff\xff\xff\x7f"
    path.write_bytes(content)
    with pytest.raises(mmhash.InputValueError, match="damaged"):
        list(read_source(str(path), "p"))


def test_a_path_that_is_not_utf_8_has_an_error(tmp_path: Path) -> None:
    ends = (0).to_bytes(4, "little") + (2).to_bytes(4, "little")
    latin = pa.StringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(b"a\xff"))
    pq.write_table(pa.table({"p": latin}), tmp_path / "names")
    (shard,) = read_source(str(tmp_path / "names"), "p")
    assert shard.names == ["a\N{REPLACEMENT CHARACTER}"]
    (row,) = shard.hash(BulkOptions())
    assert row[-1].startswith("UnicodeEncodeError: ")
