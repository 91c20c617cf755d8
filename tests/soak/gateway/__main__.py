"""`python -m tests.soak.gateway --minutes 10`: exit with 1 if anything was wrong, lost or grew."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import get_args

from tests.soak import verdict
from tests.soak.gateway.faults import Faults
from tests.soak.gateway.fleet import Environment, started
from tests.soak.gateway.load import Load, Outcome, Verdict
from tests.soak.watch import Usage, usage
from tests.support.service import TIMEOUT_S


class Run:
    """The load, the faults, and a sample of the gateway for each second."""

    def __init__(self, environment: Environment, seconds: float, rate: float) -> None:
        self._environment, self._seconds = environment, seconds
        self._start = time.monotonic()
        self._load = Load(environment, rate, self._start + seconds)
        self._faults = Faults(environment)
        self._samples: list[Usage] = []
        self._index: Counter[str] = Counter()

    async def to_the_end(self) -> list[str]:
        """Run it; return everything that was not as it must be."""
        load = asyncio.create_task(self._load.run())
        while not load.done():
            await self._second()
        await load
        return [*self._wrong(), *self._without_effect(), *self._grown(), *self._left()]

    async def _second(self) -> None:
        second = time.monotonic() - self._start
        # In a thread: a fault may wait for a process.
        names = await asyncio.to_thread(self._faults.act, second / self._seconds)
        self._samples.append(await asyncio.to_thread(usage, self._environment.gateway))
        await asyncio.sleep(max(0.0, self._start + second + 1 - time.monotonic()))
        now, outcomes = self._samples[-1], self._load.outcomes
        bad = sum(one.verdict in {"wrong", "lost"} for one in outcomes)
        print(
            f"{second:4.0f} s, {len(outcomes)} requests, {bad} bad: {now.memory_mib:.0f} MiB, "
            f"{now.descriptors} descriptors {', '.join(names)}",
            flush=True,
        )

    def _wrong(self) -> list[str]:
        outcomes = self._load.outcomes
        found = [
            f"{one.verdict}: {one.kind} {one.detail}"
            for one in outcomes
            if one.verdict in {"wrong", "lost"}
        ]
        found += [
            f"refused {one.refused} times while a worker was up: {one.kind}"
            for one in outcomes
            if one.refused and not self._faults.nobody_could_answer(one.began, one.began + one.took)
        ]
        # At most what the slots had under way at each kill.
        broken = sum(one.verdict == "broken" for one in outcomes)
        if broken > 8 * self._faults.kills:
            found.append(f"{broken} replies were broken by {self._faults.kills} kills")
        right = Counter(one.kind for one in outcomes if one.verdict == "right")
        return found + [
            f"no reply to {kind}" for kind in {one.kind for one in outcomes} - set(right)
        ]

    def _without_effect(self) -> list[str]:
        """Return the faults that the gateway did not notice: these proved nothing."""
        gateway = self._environment.gateway
        index = gateway.index()
        print(f"the index: {index}; memo failures: {gateway.count('mmhash_memo_failures_total')}")
        found = [f"no {name}" for name in ("gaps", "replays", "drops", "blocks") if not index[name]]
        if not gateway.count("mmhash_memo_failures_total"):
            found.append("no memo operation failed without Redis")
        if not any(one.refused for one in self._load.outcomes):
            found.append("no request was refused while all workers were down")
        return found

    def _grown(self) -> list[str]:
        found = []
        for name in ("memory_mib", "descriptors"):
            trend = verdict.second_half([getattr(one, name) for one in self._samples])
            print(f"{name}, second half: {trend}, {'flat' if trend.is_flat else 'it grew'}")
            if self._seconds >= verdict.JUDGED_FROM_S and not trend.is_flat:
                found.append(f"{name} grew")
        return found

    def _left(self) -> list[str]:
        """Return requests still counted without clients, and a log with a traceback."""
        gateway = self._environment.gateway
        metric = "mmhash_gateway_requests_in_progress"
        until = time.monotonic() + TIMEOUT_S
        while (left := gateway.count(metric)) and time.monotonic() < until:
            time.sleep(0.2)
        found = [f"{metric} is {left}"] if left else []
        gateway.process.terminate()
        if status := gateway.process.wait(TIMEOUT_S):
            found.append(f"the gateway exited with {status}")
        gateway.log.join()
        return found + [line for line in gateway.log if "Traceback" in line]

    @property
    def outcomes(self) -> list[Outcome]:
        """The requests up to now."""
        return self._load.outcomes


def print_table(outcomes: list[Outcome]) -> None:
    """Print the requests by kind and verdict."""
    verdicts = get_args(Verdict)
    print(f"| request | {' | '.join(verdicts)} | refused, sent again |")
    print("| --- |" + " ---: |" * (len(verdicts) + 1))
    for kind in [*sorted({one.kind for one in outcomes}), "all"]:
        own = [one for one in outcomes if kind in {one.kind, "all"}]
        counts = Counter(one.verdict for one in own)
        cells = [*(counts[one] for one in verdicts), sum(one.refused > 0 for one in own)]
        print(f"| {kind} | {' | '.join(map(str, cells))} |")


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.gateway", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=40.0, help="requests per second, about")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="mmhash-soak-") as folder,
        started(Path(folder)) as environment,
    ):
        run = Run(environment, asked.minutes * 60, asked.rate)
        failures = asyncio.run(run.to_the_end())
    print_table(run.outcomes)
    for failure in failures[:50]:
        print(failure)
    print("failed" if failures else "good")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
