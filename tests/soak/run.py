"""One run: load, faults and samples, second by second, and what was not as it must be."""

import multiprocessing
import queue
import time

from mmhash.client.shared import POOL_BYTES
from tests.soak import load, verdict
from tests.soak.environment import Environment, Service
from tests.soak.faults import Fault, Faults
from tests.soak.load import Load, Outcome
from tests.soak.report import Sample, tell
from tests.soak.watch import usage

MIB = 1 << 20

# How long services may take to let go of what was given up at the end.
_SETTLE_S = 60


class Run:
    """Its outcomes, and a sample of each service a second."""

    def __init__(self, environment: Environment, seconds: float, rate: float) -> None:
        self._services, self._seconds = environment.services, seconds
        self.outcomes: list[Outcome] = []
        self.samples: list[Sample] = []
        self._faults = Faults(environment)
        context = multiprocessing.get_context("spawn")
        self._queue = context.Queue()
        self._start = time.monotonic()
        each, until = rate / len(self._services), self._start + seconds
        loads = [
            Load(
                number,
                service.name,
                service.socket,
                environment.folder,
                environment.origin,
                each,
                until,
            )
            for number, service in enumerate(self._services)
        ]
        self._loads = [
            context.Process(target=load.run, args=(one, self._queue), daemon=True) for one in loads
        ]

    def to_the_end(self) -> list[str]:
        """Run it; everything that was not as it must be."""
        for process in self._loads:
            process.start()
        while any(process.is_alive() for process in self._loads):
            self._second()
        self._second()
        return [
            *verdict.failures(self.outcomes),
            *(f"a load ended with {one.exitcode}" for one in self._loads if one.exitcode != 0),
            *(f"nobody felt: {fault}" for fault in self._faults.unfelt()),
            *self._grown(),
            *(problem for service in self._services for problem in _left(service)),
        ]

    def _second(self) -> None:
        """Do what is due, let a second pass, and see what it brought."""
        second = time.monotonic() - self._start
        faults = self._faults.act(second / self._seconds)
        time.sleep(max(0.0, self._start + second + 1 - time.monotonic()))
        came = self._came()
        samples = [_sample(second, service, came, faults) for service in self._services]
        self.outcomes += came
        self.samples += samples
        tell(samples, self.outcomes)

    def _came(self) -> list[Outcome]:
        found = []
        while True:
            try:
                found.append(self._queue.get_nowait())
            except queue.Empty:
                return found

    def _grown(self) -> list[str]:
        """Memory and descriptors that climbed, if the run was long enough to tell."""
        found = []
        for service in self._services:
            own = [one for one in self.samples if one.service == service.name]
            taken: dict[str, list[float]] = {
                "MiB": [one.memory_mib for one in own],
                "descriptors": [one.descriptors for one in own],
            }
            # The load has ended: its client's pool, with the ledger, is all that may be mapped yet.
            if own[-1].clients_mib > POOL_BYTES / MIB + 1:
                found.append(f"{service.name} maps more than its client's pool")
            for unit, values in taken.items():
                trend = verdict.second_half(values)
                print(f"memo in {service.name}, second half: {trend} {unit}")
                if self._seconds >= verdict.JUDGED_FROM_S and not trend.is_flat:
                    found.append(f"it grew: {service.name}, {unit}")
        return found


def _sample(second: float, service: Service, came: list[Outcome], faults: list[Fault]) -> Sample:
    took = sorted(
        one.took for one in came if one.service == service.name and one.verdict != "cancelled"
    )
    p99_ms = round(took[int(len(took) * 0.99)] * 1e3, 1) if took else 0.0
    names = ", ".join(fault.name for fault in faults if fault.service is service)
    used = usage(service)
    return Sample(round(second, 1), service.name, *used, len(took), p99_ms, names)


def _left(service: Service) -> list[str]:
    """Return the requests and bytes still counted without clients, a bad exit status, and the log's errors."""
    metrics = "mmhash_calls_in_progress", "mmhash_held_bytes"
    until = time.monotonic() + _SETTLE_S
    while left := [f"{service.name}: {name} is not 0" for name in metrics if service.count(name)]:
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    if status := service.shut_down():
        left.append(f"{service.name} ended with {status}")
    return [*left, *(f"{service.name} logged: {line}" for line in service.errors())]
