"""The results of a run: a table of its requests, its samples, and a plot of them."""

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_args

import matplotlib as mpl

from tests.soak.load import Outcome, Verdict

mpl.use("svg")
from matplotlib import pyplot as plt

RESULTS = Path(__file__).parent / "results"

_PANELS = {
    "memory_mib": "memory, MiB",
    "clients_mib": "clients' shared memory\nthat is mapped, MiB",
    "descriptors": "descriptors",
    "answers": "answers a second",
    "p99_ms": "p99, ms",
}
_COLORS = {"redis": "tab:red", "sqlite": "tab:blue"}


class Sample(NamedTuple):
    """A service at one second of the run."""

    second: float
    service: str
    memory_mib: float
    clients_mib: float
    descriptors: int
    answers: int
    p99_ms: float
    faults: str


def tell(samples: Sequence[Sample], outcomes: Sequence[Outcome]) -> None:
    """Print how it goes: the newest sample of each service."""
    bad = sum(one.verdict in {"wrong", "lost"} for one in outcomes)
    now = "; ".join(
        f"{one.service} {one.memory_mib:.0f} MiB, {one.descriptors} descriptors,"
        f" p99 {one.p99_ms:.0f} ms {one.faults}"
        for one in samples
    )
    print(f"{samples[0].second:4.0f} s, {len(outcomes)} requests, {bad} bad: {now}", flush=True)


def print_table(outcomes: Sequence[Outcome]) -> None:
    """The requests by kind and verdict."""
    verdicts = get_args(Verdict)
    print(f"| request | {' | '.join(verdicts)} | sent again |")
    print("| --- |" + " ---: |" * (len(verdicts) + 1))
    for kind in [*sorted({one.kind for one in outcomes}), "all"]:
        own = [one for one in outcomes if kind in {one.kind, "all"}]
        counts = Counter(one.verdict for one in own)
        found = [*(counts[verdict] for verdict in verdicts), sum(one.sent_again for one in own)]
        print(f"| {kind} | {' | '.join(map(str, found))} |")


def plot(samples: Sequence[Sample]) -> None:
    """Write the samples to results/soak.csv, and draw them."""
    with (RESULTS / "soak.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Sample._fields)
        writer.writerows(samples)
    draw()


def draw() -> None:
    """Draw results/soak.svg from results/soak.csv."""
    with (RESULTS / "soak.csv").open() as file:
        rows = list(csv.DictReader(file))
    figure, panels = plt.subplots(5, 1, figsize=(11, 12), sharex=True)
    for axes, (column, title) in zip(panels, _PANELS.items(), strict=True):
        for service, color in _COLORS.items():
            own = [row for row in rows if row["service"] == service]
            seconds = [float(row["second"]) for row in own]
            values = [float(row[column]) for row in own]
            axes.plot(seconds, values, color=color, lw=0.8, label=f"memo in {service}")
        axes.set_ylabel(title)
        axes.grid(alpha=0.2)
        for row in rows:
            if row["faults"]:
                color = _COLORS[row["service"]]
                axes.axvline(float(row["second"]), color=color, lw=0.7, ls=":")
    for row in rows:
        if row["faults"]:
            place = (float(row["second"]), 1.02)
            axes = panels[0]
            axes.annotate(
                row["faults"],
                place,
                xycoords=axes.get_xaxis_transform(),
                rotation=60,
                size=7,
                color=_COLORS[row["service"]],
            )
    panels[0].set_ylim(bottom=0)
    panels[2].set_ylim(bottom=0)
    panels[0].legend(fontsize=8, loc="lower right")
    panels[-1].set(yscale="log", xlabel="seconds")
    figure.tight_layout()
    figure.savefig(RESULTS / "soak.svg", metadata={"Date": None})
