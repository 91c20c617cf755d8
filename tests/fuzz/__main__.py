"""Fuzz the targets, each in a process of its own, led by the branches that its code takes.

`make fuzz` runs it. What a target fails on is kept in build/fuzz/, and is to become a case of
tests/fuzz/corpus/.
"""

import argparse
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import atheris

CORPUS = Path(__file__).parent / "corpus"

_EXECUTIONS = re.compile(r"stat::number_of_executed_units: (\d+)")
_MAX_LENGTH = 4096


class Limits(NamedTuple):
    """When a target has been fuzzed enough: after so many seconds or runs, where 0 is no limit."""

    seconds: int
    runs: int


def fuzz(
    targets: Mapping[str, Callable[[bytes], None]], limits: Limits, folder: Path, jobs: int
) -> list[str]:
    """Fuzz all targets, `jobs` at once, and return those that failed."""
    context = multiprocessing.get_context("fork")  # what was instrumented is there at once
    folder.mkdir(parents=True, exist_ok=True)
    waiting = sorted(targets)
    running: dict[str, multiprocessing.process.BaseProcess] = {}
    failed: list[str] = []
    total = 0
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            process = context.Process(target=_fuzz_one, args=(name, targets[name], limits, folder))
            process.start()
            running[name] = process
        time.sleep(0.1)
        for name in [name for name, process in running.items() if not process.is_alive()]:
            process = running.pop(name)
            log = (folder / f"{name}.log").read_text(errors="replace")
            found = _EXECUTIONS.search(log)
            executions = int(found[1]) if found else 0
            total += executions
            print(f"{name:20} {executions:>12,} executions", flush=True)
            if process.exitcode:
                failed.append(name)
                print(log[-3000:], f"See {folder}/{name}-*", sep="\n", flush=True)
    print(f"{'in all':20} {total:>12,} executions, {len(failed)} targets failed", flush=True)
    return failed


def _fuzz_one(name: str, target: Callable[[bytes], None], limits: Limits, folder: Path) -> None:
    """Run the process of one target; it ends in `Fuzz`."""
    with (folder / f"{name}.log").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    found = folder / name
    found.mkdir(exist_ok=True)
    options = [
        f"-max_total_time={limits.seconds}",
        f"-runs={limits.runs or -1}",
        f"-max_len={_MAX_LENGTH}",
        f"-artifact_prefix={folder}/{name}-",  # of what is too slow, too large or no exception
        "-timeout=10",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
        str(found),
        *(str(path) for path in [CORPUS / name] if path.is_dir()),
    ]

    def try_target(data: bytes) -> None:
        try:
            target(data)
        except BaseException:
            (folder / f"{name}-failed").write_bytes(data)
            raise

    atheris.Setup([name, *options], try_target)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", help="Targets; all, if none is named.")
    parser.add_argument("--seconds", type=int, default=0, help="How long each is fuzzed.")
    parser.add_argument("--runs", type=int, default=0, help="How often each is run at most.")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    with atheris.instrument_imports(
        include=["mmhash", "mmhash_service", "python_multipart", "PIL"]
    ):
        from tests.fuzz import targets

    names = arguments.names or list(targets.TARGETS)
    chosen = {name: lambda data, name=name: targets.run(name, data) for name in names}
    failed = fuzz(
        chosen, Limits(arguments.seconds, arguments.runs), arguments.folder, arguments.jobs
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
