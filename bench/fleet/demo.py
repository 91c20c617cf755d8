"""`make demo`: replays a short trace through the gateway on two vLLM workers, with a page to watch.

The workers run on the CPU and take 2 GB of memory each. The first run builds vLLM's environment in
~/.cache/mmhash-live, which takes 4 minutes and 3.5 GB. Later runs take 2 to 4 minutes, mostly
waiting for the workers.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event, Thread

from bench.fleet import report, workers
from bench.fleet.compare import compare
from bench.fleet.gateway import gateway
from bench.fleet.replay import replay
from bench.fleet.traces import SCALE, SYSTEM, LiveTrace
from bench.trace.workload import VISIONARENA, renamed
from tests.live.engines import Engine
from tests.live.environments import Environment

ENGINE, RELEASE, WORKERS = "vllm", "0.32.0", 2
POLICIES = ("round-robin", "longest-prefix")
TRACE = LiveTrace(replace(VISIONARENA, sessions=24, rate=2.0, pause_s=2.0, system=SYSTEM), SCALE)


def main() -> None:
    """Run the demo until Ctrl-C, or until the table with --exit."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet.demo", description=__doc__)
    parser.add_argument(
        "--exit",
        action="store_true",
        default=os.environ.get("DEMO_EXIT") == "1",
        help="end after the table, as with DEMO_EXIT=1",
    )
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="mmhash-demo-") as logs, ExitStack() as stack:
            fleet = _start(stack, Path(logs))
            _print_comparison(fleet)
            if not arguments.exit:
                _stay(fleet)
    except KeyboardInterrupt:
        print("\nstopped")


def _start(stack: ExitStack, logs: Path) -> list[Engine]:
    environment = Environment(ENGINE, RELEASE)
    with _progress(f"vLLM {RELEASE} in {environment.path}; if new, 4 minutes and 3.5 GB"):
        environment.build()
    with _progress(f"{WORKERS} workers on the CPU; 1 to 3 minutes"):
        return stack.enter_context(workers.started(ENGINE, RELEASE, WORKERS, logs))


def _print_comparison(fleet: Sequence[Engine]) -> None:
    runs = []
    compared = compare(fleet, [TRACE], POLICIES, gateway)
    for policy in POLICIES:
        with _progress(f"{len(TRACE.requests())} requests with images, {policy}"):
            runs.append(next(compared))
    print(f"\nReal engines on the CPU, a tiny model, a trace with {TRACE.scale} of its tokens:\n")
    print(report.table(runs), flush=True)


def _stay(fleet: Sequence[Engine]) -> None:
    """Keep a gateway running, and replay the trace again and again, so that the page shows it."""
    with gateway(fleet, "longest-prefix") as url:
        print(f"The gateway: {url}/   Its workers: {url}/workers   End: Ctrl-C", flush=True)
        for number in count():
            replay(url, renamed(TRACE.requests(), f"again-{number}-"))


@contextmanager
def _progress(what: str) -> Iterator[None]:
    """Print a line for a step, and update its seconds until the step ends."""
    start, ended = time.monotonic(), Event()

    def line(end: str) -> None:
        print(f"\r{what}: {time.monotonic() - start:.0f} s", end=end, flush=True)

    def tick() -> None:
        while not ended.wait(1 if sys.stdout.isatty() else 30):
            line("" if sys.stdout.isatty() else "\n")

    thread = Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        line("\n")


if __name__ == "__main__":
    main()
