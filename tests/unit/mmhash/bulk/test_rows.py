"""The rows in a column of a Parquet file: a shard for each row group."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import mmhash
from mmhash.bulk.sources import read_source
from mmhash.bulk.work import Options, Row


def rows_of(file: str) -> list[Row]:
    """Return the rows of the column data."""
    return [row for shard in read_source(file, "data").shards for row in shard.hash(Options(), 1)]


def test_a_row_group_is_a_shard(tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    values = [b"%d" % n for n in range(100)]
    values[7] = None  # type: ignore[call-overload]
    table = pa.table({"id": range(100), "data": pa.array(values, pa.large_binary())})
    pq.write_table(table, file, row_group_size=70)
    source = read_source(file, "data")
    assert source.names == "row"
    assert [shard.names for shard in source.shards] == [range(70), range(70, 100)]
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


def test_a_row_group_of_another_file_or_column_has_another_identity(tmp_path: Path) -> None:
    def identity(name: str, column: str) -> str:
        (shard,) = read_source(str(tmp_path / name), column).shards
        return shard.identity

    table = pa.table({"a": [b"x"], "b": [b"x"]})
    for name in ("one", "two"):
        pq.write_table(table, tmp_path / name)
        os.utime(tmp_path / name, ns=(0, 0))
    assert len({identity("one", "a"), identity("one", "b"), identity("two", "a")}) == 3
