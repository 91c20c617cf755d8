"""The tables of docs/engines.md and docs/guard.md, as the engine registry has them.

python -m tests.docs.engine_tables    # write them into the pages
"""

from collections.abc import Iterator
from pathlib import Path

from mmhash.engines.registry import ENGINES

DOCS = Path(__file__).parents[2] / "docs"

TREATMENTS = {
    "hash": "tag",
    "hashes": "tags for all",
    "encoder": "tags for all",
    "feature": "removed",
    "peer": "removed",
    "peers": "removed",
    "header": "removed",
    "pass": "passes",
}


def releases() -> Iterator[str]:
    """Yield the rows of the known releases."""
    yield "| engine | name | releases with the same recipe |"
    yield "| --- | --- | --- |"
    for engine in ENGINES:
        yield f"| {engine.title} | `{engine.name}` | {', '.join(map(str, engine.releases))} |"


def hash_fields() -> Iterator[str]:
    """Yield the rows of the request fields that carry a hash."""
    yield "| engine | release | request | field | value |"
    yield "| --- | --- | --- | --- | --- |"
    for engine in ENGINES:
        for row in engine.hash_fields:
            yield f"| {engine.title} | {row.releases} | {row.request} | {row.field} | {row.value} |"


def caller_fields() -> Iterator[str]:
    """Yield the rows of the request fields by which a caller reaches an engine's caches."""
    yield "| engine | field | releases | where | effect | the guard |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for engine in ENGINES:
        for row in engine.caller_fields:
            names = ", ".join(f"`{name}`" for name in row.names)
            yield (
                f"| {engine.title} | {names} | {row.releases or 'all'} | {row.where} | "
                f"{row.effect} | {TREATMENTS[row.kind]} |"
            )


TABLES = {
    "engines.md": [list(releases()), list(hash_fields())],
    "guard.md": [list(caller_fields())],
}


def replace_table(lines: list[str], table: list[str]) -> list[str]:
    """Return the lines of a page with the table of the same first line replaced."""
    start = end = lines.index(table[0])
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return lines[:start] + table + lines[end:]


if __name__ == "__main__":
    for name, tables in TABLES.items():
        lines = (DOCS / name).read_text().splitlines()
        for table in tables:
            lines = replace_table(lines, table)
        (DOCS / name).write_text("\n".join(lines) + "\n")
