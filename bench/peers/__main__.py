"""`python -m bench.peers`: runs each router in each scenario, and writes a table of medians.

    python -m bench.peers [--scenario "two routers"] [--trace agents] [--router smg]
        [--seeds 3] [--first-seed 0] [--engine vllm@0.32.0]

The workers are simulated (bench/peers/workers.py). With --engine, two real engines replay the
traces behind one router instead. The routers take turns.
"""

import argparse
import csv
import os
import statistics
import tempfile
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

from bench.fleet import workers as engines
from bench.fleet.traces import TRACES
from bench.peers.routers import CONTROLS, ROUTERS
from bench.peers.scenarios import SCENARIOS, Run, run, run_live
from bench.support.measure import RESULTS, read

CSV = RESULTS / "peers.csv"
TABLE = RESULTS / "peers.md"

_COLUMNS = {
    "cached tokens": ("cached_percent", "{:.1f} %"),
    "time to first token, mean": ("first_token_mean_ms", "{:.0f} ms"),
    "p50": ("first_token_p50_ms", "{:.0f} ms"),
    "p95": ("first_token_p95_ms", "{:.0f} ms"),
    "p99": ("first_token_p99_ms", "{:.0f} ms"),
    "computed by the busiest worker": ("busiest_computed_tokens", "{:.0f}"),
    "CPU per request": ("router_cpu_ms", "{:.2f} ms"),
    "memory": ("router_mib", "{:.0f} MiB"),
    "sent again": ("repeated", "{:.0f}"),
}


def main() -> None:
    """Run the scenarios, keep each run, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--scenario", action="append", help="default: all")
    parser.add_argument("--trace", action="append", help="default: all")
    parser.add_argument("--workers", type=int, action="append", help="default: all")
    parser.add_argument("--router", action="append", help="first words of its name; default: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--engine", help="real engines, such as vllm@0.32.0")
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # otherwise it warns in each forked process
    wanted = tuple(arguments.router or ("",))
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    runs = _live(arguments, wanted, seeds) if arguments.engine else _all(arguments, wanted, seeds)
    for one in runs:
        print(one, flush=True)
        keep(one)


def _all(
    arguments: argparse.Namespace, wanted: tuple[str, ...], seeds: Iterable[int]
) -> Iterator[Run]:
    chosen = [
        one
        for one in SCENARIOS
        if (arguments.scenario is None or one.name in arguments.scenario)
        and (arguments.trace is None or one.trace.name in arguments.trace)
        and (arguments.workers is None or one.workers in arguments.workers)
    ]
    for seed, scenario in product(seeds, chosen):
        for name in (*ROUTERS, *scenario.controls):
            if name.startswith(wanted):
                yield run(scenario, name, seed)


def _live(
    arguments: argparse.Namespace, wanted: tuple[str, ...], seeds: Iterable[int]
) -> Iterator[Run]:
    engine, _, release = arguments.engine.partition("@")
    traces = [TRACES[name] for name in arguments.trace or TRACES]
    with (
        tempfile.TemporaryDirectory(prefix="mmhash-peers-") as logs,
        engines.started(engine, release, 2, Path(logs)) as fleet,
    ):
        for seed, trace, name in product(seeds, traces, ROUTERS | CONTROLS):
            if name.startswith(wanted):
                yield run_live(fleet, trace, name, seed)


def keep(new: Run) -> None:
    """Write a run to the CSV file, replacing an older run of its kind, and update the table."""
    key = new[:5]
    runs = [*(one for one in read(CSV, Run) if one[:5] != key), new]
    with CSV.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Run._fields)
        writer.writerows(runs)
    TABLE.write_text(table(runs))


def table(runs: Iterable[Run]) -> str:
    """Return a Markdown table of the medians over seeds."""
    groups: dict[tuple[str, str, int], dict[str, list[Run]]] = {}
    for one in runs:
        group = groups.setdefault((one.scenario, one.trace, one.workers), {})
        group.setdefault(one.router, []).append(one)
    head = ("scenario", "router", *_COLUMNS)
    lines = [f"| {' | '.join(head)} |", "| --- | --- |" + " ---: |" * len(_COLUMNS)]
    for (scenario, trace, workers), routers in groups.items():
        for router, seeds in routers.items():
            cells = [
                form.format(statistics.median(getattr(one, field) for one in seeds))
                for field, form in _COLUMNS.values()
            ]
            name = f"{scenario}, {workers} workers, {trace}"
            lines.append(f"| {name} | {router} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
