"""Tables in the docs that repeat the code equal the code."""

import pytest

from tests.docs.tables import DOCS, TABLES, replace_table


@pytest.mark.parametrize(
    ("name", "table"), [(name, table) for name, tables in TABLES.items() for table in tables]
)
def test_a_page_has_the_table_of_the_code(name: str, table: list[str]) -> None:
    lines = (DOCS / name).read_text().splitlines()
    assert replace_table(lines, table) == lines, "run python -m tests.docs.tables"
