"""Rows as Arrow tables."""

from typing import Any

import pytest

from mmhash.bulk.tables import table_of

COLUMNS = ("row", "key")


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_rows_are_read_back_with_their_nulls(count: int) -> None:
    rows: list[tuple[Any, ...]] = [
        (
            None if number % 3 == 0 else number << 40,
            None if number % 5 == 1 else f"\N{MICRO SIGN}\n2026-01-0{number % 9}",
        )
        for number in range(count)
    ]
    table = table_of(rows, COLUMNS)
    table.validate(full=True)
    assert [tuple(row.values()) for row in table.to_pylist()] == rows
    assert [str(field.type) for field in table.schema] == ["int64", "string"]


def test_a_text_that_looks_like_a_time_or_a_number_is_a_text() -> None:
    rows = [(1, "2026-01-01"), (2, "7"), (3, "null"), (4, "")]
    assert table_of(rows, COLUMNS)["key"].to_pylist() == ["2026-01-01", "7", "null", ""]
