"""A run: load, faults and samples, second by second, and everything that went wrong."""

import argparse
import asyncio
import random
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import httpx

from tests.soak.measure import Usage, second_half, usage
from tests.support.service import TIMEOUT_S, Service, count

Verdict = Literal["right", "wrong", "lost", "cancelled"]

SLOTS = 8
CANCELLED = 0.08
# A request that has no answer by then counts as lost, however often it was sent.
PATIENCE_S = 60.0
KILLED = "exited with -9"
# New processes grow for a while: a shorter run says nothing about leaks.
JUDGED_FROM_S = 300.0


class Outcome(NamedTuple):
    """The outcome of a request, its times, and how often it was refused and sent again."""

    kind: str
    verdict: Verdict
    began: float
    took: float
    resent: int
    detail: str = ""


class ResendError(Exception):
    """The service cannot answer for now: a client sends its request again."""


class Question(NamedTuple):
    """A request, and the answer that it must have."""

    expected: Any
    ask: Callable[[], Awaitable[Any]]


class Load(ABC):
    """Slots that send one request after another until the time is over."""

    kinds: tuple[str, ...]

    def __init__(self, url: str, rate: float, seconds: float) -> None:
        self.draw = random.Random(0)
        self.outcomes: list[Outcome] = []
        self.http = httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, trust_env=False)
        self._rate, self._seconds = rate, seconds

    @abstractmethod
    def question(self, kind: str) -> Question:
        """Make a request of a kind."""

    async def run(self) -> None:
        """Send requests, and wait for the last answers."""
        until = time.monotonic() + self._seconds
        async with self.http, asyncio.TaskGroup() as slots:
            for _ in range(SLOTS):
                slots.create_task(self._slot(until))

    async def _slot(self, until: float) -> None:
        while time.monotonic() < until:
            self.outcomes.append(await self._request(self.draw.choice(self.kinds)))
            await asyncio.sleep(self.draw.expovariate(self._rate / SLOTS))

    async def _request(self, kind: str) -> Outcome:
        expected, ask = await asyncio.to_thread(self.question, kind)
        is_given_up = self.draw.random() < CANCELLED
        patience_s = 10 ** self.draw.uniform(-4, -1) if is_given_up else PATIENCE_S
        began, resent, detail = time.monotonic(), 0, ""
        verdict: Verdict = "right"
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    try:
                        answer = await ask()
                        break
                    except ResendError:
                        resent += 1
                        await asyncio.sleep(0.2)
            if answer != expected:
                verdict, detail = "wrong", f"{answer!r:.300} is not {expected!r:.300}"
        except TimeoutError:
            verdict = "cancelled" if is_given_up else "lost"
        except httpx.HTTPError as error:
            verdict, detail = "lost", repr(error)
        return Outcome(kind, verdict, began, time.monotonic() - began, resent, detail)


class Fault(NamedTuple):
    """Something done after that part of the run."""

    at: float
    name: str
    act: Callable[[], object]


def between(
    times: tuple[tuple[float, float], ...],
    name: str,
    start: Callable[[], object],
    stop: Callable[[], object],
) -> list[Fault]:
    """Return the faults that begin and end at these parts of the run."""
    return [
        fault
        for begin, end in times
        for fault in (Fault(begin, name, start), Fault(end, f"{name}: over", stop))
    ]


async def run(service: Service, load: Load, faults: list[Fault], seconds: float) -> list[Usage]:
    """Run it to the end; return a sample for each second."""
    start = time.monotonic()
    due = sorted(faults, key=lambda fault: fault.at)
    samples: list[Usage] = []
    running = asyncio.create_task(load.run())
    while not running.done():
        second = time.monotonic() - start
        now = [fault for fault in due if fault.at <= second / seconds]
        del due[: len(now)]
        for fault in now:
            await asyncio.to_thread(fault.act)  # it may wait for a process
        samples.append(await asyncio.to_thread(usage, service.process.pid))
        names = ", ".join(fault.name for fault in now)
        print(f"{second:4.0f} s, {len(load.outcomes)} requests, {samples[-1]} {names}", flush=True)
        await asyncio.sleep(max(0.0, start + second + 1 - time.monotonic()))
    await running
    return samples


def failures_of(outcomes: list[Outcome]) -> list[str]:
    """Return the wrong and lost requests, and the kinds of requests without a correct answer."""
    found = [
        f"{one.verdict}: {one.kind} {one.detail}"
        for one in outcomes
        if one.verdict in {"wrong", "lost"}
    ]
    right = {one.kind for one in outcomes if one.verdict == "right"}
    return found + [f"no answer to {kind}" for kind in {one.kind for one in outcomes} - right]


def growth(samples: list[Usage], seconds: float) -> list[str]:
    """Return what grew, if the run was long enough to tell."""
    found = []
    for name in Usage._fields:
        trend = second_half([getattr(one, name) for one in samples])
        print(f"{name}, second half: {trend}, {'flat' if trend.is_flat else 'it grew'}")
        if seconds >= JUDGED_FROM_S and not trend.is_flat:
            found.append(f"{name} grew")
    return found


def leftovers(service: Service, *metrics: str, error: str = "Traceback") -> list[str]:
    """Stop the service; return what it still counts without clients, and lines with an error."""
    until, found = time.monotonic() + TIMEOUT_S, []
    with service.new_client(trust_env=False) as client:
        for name in metrics:
            while (left := count(client, name)) and time.monotonic() < until:
                time.sleep(0.2)
            found += [f"{name} is {left}"] if left else []
    service.process.terminate()
    if status := service.process.wait(TIMEOUT_S):
        found.append(f"the service exited with {status}")
    service.log.join()
    return found + [line for line in service.log if error in line and KILLED not in line]


def print_table(outcomes: list[Outcome]) -> None:
    """Print the requests by kind and verdict."""
    verdicts = get_args(Verdict)
    print(f"| request | {' | '.join(verdicts)} | sent again |")
    print("| --- |" + " ---: |" * (len(verdicts) + 1))
    for kind in [*sorted({one.kind for one in outcomes}), "all"]:
        own = [one for one in outcomes if kind in {one.kind, "all"}]
        counts = Counter(one.verdict for one in own)
        cells = [*(counts[one] for one in verdicts), sum(one.resent > 0 for one in own)]
        print(f"| {kind} | {' | '.join(map(str, cells))} |")


def main(
    soak: Callable[[Any, float, float], tuple[list[Outcome], list[str]]],
    start: Callable[[Path], AbstractContextManager[Any]],
) -> int:
    """Run a soak as the command line asks, and return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=40.0, help="requests per second, about")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="mmhash-soak-") as folder,
        start(Path(folder)) as environment,
    ):
        outcomes, failures = soak(environment, asked.minutes * 60, asked.rate)
    print_table(outcomes)
    for failure in failures[:50]:
        print(failure)
    print("failed" if failures else "good")
    return int(bool(failures))
