"""The report of the passes over one graph."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One pass: the number of places where it rewrote the graph, and its cost."""

    name: str
    uuid: str
    matches: int
    nodes_before: int
    nodes_after: int
    milliseconds: float
    rolled_back: str = ""  # the reason, if it was


@dataclass(frozen=True)
class Report:
    """All passes over one graph; as text, a table."""

    rows: tuple[Row, ...]

    def matches(self, name: str) -> int:
        """Return the number of places where the pass of that name rewrote the graph."""
        return sum(row.matches for row in self.rows if row.name == name)

    def __str__(self) -> str:
        lines = [("pass", "matches", "nodes", "ms", "uuid", ""), *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        str(row.matches),
        f"{row.nodes_before} -> {row.nodes_after}",
        f"{row.milliseconds:.2f}",
        row.uuid[:12],
        row.rolled_back and f"rolled back: {row.rolled_back}",
    )
