"""`python -m bench.fleet --engine vllm@0.32.0 --workers 2`: replay the traces with each policy."""

import argparse
import tempfile
from pathlib import Path

from bench.fleet import report
from bench.fleet.compare import Run, compare
from bench.fleet.gateway import POLICIES, gateway
from bench.fleet.traces import TRACES
from bench.fleet.workers import started


def main() -> None:
    """Start the workers, compare the policies, and keep the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--engine", default="vllm@0.32.0", help="vllm@0.32.0 or sglang@0.5.23")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--trace", choices=TRACES, action="append", help="default: all")
    parser.add_argument("--policy", action="append", help="default: all")
    parser.add_argument("--rounds", type=int, default=1, help="of each seed")
    parser.add_argument("--seeds", type=int, default=1, help="0 to N - 1; the table has a range")
    arguments = parser.parse_args()
    engine, _, release = arguments.engine.partition("@")
    traces = [TRACES[name] for name in arguments.trace or TRACES]
    runs: list[Run] = []
    with (
        tempfile.TemporaryDirectory(prefix="mmhash-fleet-") as logs,
        started(engine, release, arguments.workers, Path(logs)) as fleet,
    ):
        policies = arguments.policy or POLICIES
        for run in compare(fleet, traces, policies, gateway, arguments.rounds, arguments.seeds):
            print(run, flush=True)
            runs.append(run)
    report.keep(runs)
    print(report.table(runs))


if __name__ == "__main__":
    main()
