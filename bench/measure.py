"""How a benchmark takes its time, and how it prints and keeps what it found."""

import csv
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results"

Call = Callable[[], object]


class Row(NamedTuple):
    """One measured thing, beside what it is compared with and what is asked of it."""

    what: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | str = ""
    ratio: float | str = ""
    asked: str = ""


def medians(*calls: Call, rounds: int = 41, loops: int = 1) -> list[float]:
    """The median seconds of each call.

    They take turns, so that a busy moment meets all of them, in an order that changes. A turn has
    several loops where threads matter: to wake them takes as long as to hash 20 MiB.
    """
    taken: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    shuffle = random.Random(0).sample
    for _ in range(rounds):
        for which in shuffle(range(len(calls)), len(calls)):
            start = time.perf_counter()
            for _ in range(loops):
                calls[which]()
            taken[which].append((time.perf_counter() - start) / loops)
    return [statistics.median(times) for times in taken]


def compare(
    what: str,
    ours: Call,
    peers: Mapping[str, tuple[Call, str]],
    *,
    rounds: int = 41,
    loops: int = 1,
) -> list[Row]:
    """A row of milliseconds a peer: its name leads to its call and to the ratio asked of us."""
    calls = (call for call, _ in peers.values())
    own, *others = medians(ours, *calls, rounds=rounds, loops=loops)
    return [
        Row(what, own * 1e3, "ms", name, other * 1e3, other / own, asked)
        for (name, (_, asked)), other in zip(peers.items(), others, strict=True)
    ]


def report(name: str, rows: list[Row]) -> None:
    """Print the rows as a table and keep them as bench/results/<name>.csv."""
    print(f"\n{name} ({platform.machine()}, Python {platform.python_version()})")
    for row in rows:
        value, peer, ratio = (
            f"{number:.4g}" if isinstance(number, float) else number
            for number in (row.value, row.peer_value, row.ratio)
        )
        beside = f"{row.peer} {peer}" + (f", {ratio}x" if ratio else "")
        print(f"  {row.what:<40} {value:>8} {row.unit:<4} {beside:<36} {row.asked}")
    keep(name, rows)


def keep(name: str, rows: Sequence[NamedTuple]) -> None:
    """Keep rows of one kind as bench/results/<name>.csv."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0]._fields)
        writer.writerows(rows)
