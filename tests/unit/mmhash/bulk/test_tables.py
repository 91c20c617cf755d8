"""Rows as Arrow tables, made from buffers."""

from typing import Any

import pyarrow as pa
import pytest

from mmhash.bulk.tables import pack, schema_of, table_of

COLUMNS = ("row", "key")


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 17])
def test_rows_are_read_back_with_their_nulls(count: int) -> None:
    rows: list[tuple[Any, ...]] = [
        (
            None if number % 3 == 0 else number,
            None if number % 5 == 1 else f"\N{MICRO SIGN}{number}",
        )
        for number in range(count)
    ]
    table = table_of(rows, schema_of(COLUMNS))
    table.validate(full=True)
    assert [tuple(row.values()) for row in table.to_pylist()] == rows
    assert pa.ipc.open_file(pack(rows, COLUMNS)).read_all().equals(table)


def test_a_column_without_nulls_has_no_mask() -> None:
    table = table_of([(1, "a"), (-(1 << 40), "")], schema_of(COLUMNS))
    table.validate(full=True)
    assert table.to_pydict() == {"row": [1, -(1 << 40)], "key": ["a", ""]}
    assert [column.null_count for column in table.columns] == [0, 0]
