"""`python -m bench.trace` prints the fit. `--write NAME FILE` writes a trace as JSON lines."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.trace.published import FIGURES, SOURCES
from bench.trace.records import write_jsonl
from bench.trace.workload import WORKLOADS, generate


def main() -> None:
    """Print the traces' figures next to the published ones, or write one trace."""
    parser = argparse.ArgumentParser(prog="python -m bench.trace", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", nargs=2, metavar=("NAME", "FILE"), help=", ".join(WORKLOADS))
    parser.add_argument("--sessions", type=int)
    parser.add_argument("--reuse", type=float, help="0 gives the control, with single turns")
    parser.add_argument("--window", type=int)
    parser.add_argument("--turns", type=int, nargs=2, metavar=("FEWEST", "MOST"))
    parser.add_argument("--tenants", type=int)
    arguments = parser.parse_args()
    if arguments.write is None:
        print_fit(arguments.seed)
        return
    name, file = arguments.write
    workload = replace(WORKLOADS[name], seed=arguments.seed)
    if arguments.reuse == 0:
        workload = workload.without_reuse()
    knobs: dict[str, Any] = {
        knob: tuple(value) if isinstance(value, list) else value
        for knob in ("sessions", "reuse", "window", "turns", "tenants")
        if (value := getattr(arguments, knob)) is not None
    }
    requests = generate(replace(workload, **knobs))
    write_jsonl(requests, Path(file))
    print(f"{file}: {len(requests)} requests")


def print_fit(seed: int) -> None:
    """Print a table: published, fitted, difference, tolerance."""
    traces = {name: generate(replace(one, seed=seed)) for name, one in WORKLOADS.items()}
    print("| source | figure | published | trace | difference | tolerance |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for figure in FIGURES:
        name = figure.workload.name
        value = figure.measure(traces[name])
        difference = value / figure.published - 1
        cells = f"{figure.published:g} | {value:.4g} | {difference:+.1%} | {figure.tolerance:.0%}"
        print(f"| {SOURCES[name]} | {figure.name} | {cells} |")


if __name__ == "__main__":
    main()
