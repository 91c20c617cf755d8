"""How a benchmark takes its time, and how it prints what it found."""

import csv
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results"


class Row(NamedTuple):
    """One measured thing beside the thing it is compared with."""

    what: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    ratio: float | None = None
    asked: str = ""


def interleaved(*calls: Callable[[], object], rounds: int = 41, loops: int = 1) -> list[float]:
    """The median seconds of each call, taken in turns, so that a busy moment meets all of them."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, times in zip(calls, taken, strict=True):
            start = time.perf_counter()
            for _ in range(loops):
                call()
            times.append((time.perf_counter() - start) / loops)
    return [statistics.median(times) for times in taken]


def report(name: str, rows: list[Row]) -> None:
    """Print the rows as a table and keep them as bench/results/<name>.csv."""
    print(
        f"\n{name}  ({platform.processor() or platform.machine()}, Python {platform.python_version()})"
    )
    for row in rows:
        beside = f"{row.peer} {row.peer_value:.4g}" if row.peer_value is not None else row.peer
        ratio = f"{row.ratio:.2f}x" if row.ratio is not None else ""
        print(
            f"  {row.what:<44} {row.value:>9.4g} {row.unit:<5} {beside:<28} {ratio:>7}  {row.asked}"
        )
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(rows)
