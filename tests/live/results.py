"""Keeps the results of live tests in files that the docs show."""

import datetime
import json
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"

COLUMNS = (
    "text",
    "one image",
    "several images",
    "same pixels, other format",
    "salt",
    "video",
    "LoRA",
)


def record(file: str, row: str, column: str, value: str) -> None:
    """Set one cell of a table, and write the table as JSON and as Markdown."""
    path = FOLDER / f"{file}.json"
    with Path(__file__).open() as lock:
        flock(lock, LOCK_EX)  # several test processes record
        table: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        cells = table.setdefault(row, {})
        cells[column] = value
        cells["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
        path.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
        (FOLDER / f"{file}.md").write_text(_markdown(table, FIRST[file]))


_ROOT = Path(__file__).parents[2]
PAGES = {
    _ROOT / "docs" / "live.md": ("matrix", "plans", "attacks"),
    _ROOT / "docs" / "gateway.md": ("gateway",),
}


def publish() -> None:
    """Write the tables into the pages that show them, between their markers."""
    for page, files in PAGES.items():
        text = page.read_text()
        for file in files:
            text = embed(text, file)
        page.write_text(text)


def embed(text: str, file: str) -> str:
    """Return a page with the newest table."""
    begin, end = f"<!-- {file} -->\n", f"<!-- end of {file} -->\n"
    before, marker, rest = text.partition(begin)
    _, other, after = rest.partition(end)
    if not marker or not other:
        return text
    return f"{before}{begin}{(FOLDER / f'{file}.md').read_text()}{end}{after}"


_ENGINES = ("vllm@0.32.0", "vllm@0.30.0", "vllm@0.28.0", "sglang@0.5.23", "sglang@0.5.20")

FIRST = {
    "matrix": ("engine", COLUMNS),
    "attacks": ("attack", ("without", "with the guard", "with the plugin")),
    "plans": ("family", _ENGINES),
    "gateway": ("call", ("vllm@0.32.0", "sglang@0.5.23")),
}


def _markdown(table: dict[str, Any], head: tuple[str, tuple[str, ...]]) -> str:
    first, known = head
    columns = [name for name in known if any(name in cells for cells in table.values())]
    columns.append("date")
    lines = [f"| {' | '.join([first, *columns])} |", "|" + " --- |" * (len(columns) + 1)]
    for row in sorted(table, reverse=first == "engine"):
        cells = [str(table[row].get(column, "not run")) for column in columns]
        lines.append(f"| {' | '.join([row, *cells])} |")
    return "\n".join(lines) + "\n"
