"""Timing of calls, and the tables and CSV files of the results."""

import csv
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

Kept = TypeVar("Kept")

RESULTS = Path(__file__).parents[1] / "results"

Call = Callable[[], object]


class Row(NamedTuple):
    """A measurement, the peer's measurement, and the target.

    These are the columns of most files in bench/results/. `ratio` is above 1 if the peer is slower,
    unless the name of the measurement says otherwise.
    """

    what: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | str = ""
    ratio: float | str = ""
    target: str = ""


def medians(*calls: Call, rounds: int = 41, loops: int = 1) -> list[float]:
    """Return the median seconds of each call.

    The calls take turns in random order, so a busy moment of the machine slows all of them. Use
    several loops if a call uses threads, because waking the threads is slow.
    """
    taken: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    shuffle = random.Random(0).sample
    for _ in range(rounds):
        for index in shuffle(range(len(calls)), len(calls)):
            start = time.perf_counter()
            for _ in range(loops):
                calls[index]()
            taken[index].append((time.perf_counter() - start) / loops)
    return [statistics.median(times) for times in taken]


def medians_of(calls: Mapping[str, Callable[[], float]], rounds: int = 5) -> list[float]:
    """Return the median of the figures that each call returns. The calls take turns."""
    figures: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            figures[name].append(call())
    return [statistics.median(values) for values in figures.values()]


def compare(
    what: str,
    ours: Call,
    peers: Mapping[str, tuple[Call, str]],
    *,
    rounds: int = 41,
    loops: int = 1,
) -> list[Row]:
    """Return a row in milliseconds for each peer, given as name -> (call, target of the ratio)."""
    calls = (call for call, _ in peers.values())
    own, *others = medians(ours, *calls, rounds=rounds, loops=loops)
    return [
        Row(what, own * 1e3, "ms", name, other * 1e3, other / own, target)
        for (name, (_, target)), other in zip(peers.items(), others, strict=True)
    ]


def report(name: str, rows: list[Row]) -> None:
    """Print the rows as a table and write them to bench/results/<name>.csv."""
    print(f"\n{name} ({platform.machine()}, Python {platform.python_version()})")
    for row in rows:
        value, peer, ratio = (
            f"{number:.4g}" if isinstance(number, float) else number
            for number in (row.value, row.peer_value, row.ratio)
        )
        compared = f"{row.peer} {peer}" + (f", {ratio}x" if ratio else "")
        print(f"  {row.what:<40} {value:>8} {row.unit:<4} {compared:<36} {row.target}")
    keep(name, rows)


def read(path: Path, kind: type[Kept]) -> list[Kept]:
    """Read rows of this type from a CSV file. Return no rows if the file does not exist."""
    if not path.exists():
        return []
    types = kind.__annotations__
    with path.open(newline="") as file:
        return [
            kind(**{name: types[name](text) for name, text in line.items()})
            for line in csv.DictReader(file)
        ]


def keep(name: str, rows: Sequence[NamedTuple]) -> None:
    """Write rows of one type to bench/results/<name>.csv."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0]._fields)
        writer.writerows(rows)
