"""The faults, each at its part of the run."""

from collections.abc import Callable
from itertools import cycle
from typing import NamedTuple

import httpx

from tests.soak.gateway.fleet import Environment, Worker
from tests.support.service import TIMEOUT_S

# Kills and restarts of single workers, over the whole run: the gateway's process is never killed.
_KILLS = tuple(0.04 + 0.06 * number for number in range(16))
_DOWN = 0.01  # as long until it is restarted
_LOST_EVENTS = (0.07, 0.25, 0.43, 0.61, 0.85)
_REFUSED_REPLAYS = (0.13, 0.49, 0.91)
_SHORT = 0.02
# In the second half these are around its middle, so that connections that are gone meanwhile tilt
# no trend.
_ALL_DOWN = ((0.205, 0.215), (0.745, 0.755))
_REDIS_GONE = ((0.3, 0.36), (0.72, 0.78))
_REDIS_HANGS = ((0.44, 0.48),)

# The gateway notices a restarted worker at its next probe, which a busy machine delays.
_NOTICED_S = 6.0


class Fault(NamedTuple):
    """Something done after that part of the run."""

    at: float
    name: str
    act: Callable[[], None]


class Faults:
    """All of them."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.kills = 0
        workers, redis = cycle(environment.workers), environment.redis
        due: list[Fault] = []
        for at in _KILLS:
            worker = next(workers)
            due += _between(at, at + _DOWN, "worker killed", self._kill(worker), worker.start)
        for at in _LOST_EVENTS:
            fault = _switch(environment.workers, "lose")
            due += _between(at, at + _SHORT, "events dropped", *fault)
        for at in _REFUSED_REPLAYS:
            # Events are lost too: otherwise nothing asks for a replay.
            for name in ("refuse", "lose"):
                fault = _switch(environment.workers, name)
                end = at + (_SHORT if name == "refuse" else _SHORT / 2)
                due += _between(at, end, f"replay refused ({name})", *fault)
        for begin, end in _ALL_DOWN:
            due += _between(begin, end, "all workers down", self._kill_all, self._start_all)
        for begin, end in _REDIS_GONE:
            due += _between(begin, end, "Redis gone", redis.kill, redis.start)
        for begin, end in _REDIS_HANGS:
            due += _between(begin, end, "Redis hangs", redis.freeze, redis.thaw)
        self._to_come = sorted(due, key=lambda fault: fault.at)

    def act(self, part: float) -> list[str]:
        """Do those that are due after that part of the run; return their names."""
        due = [fault for fault in self._to_come if fault.at <= part]
        del self._to_come[: len(due)]
        for fault in due:
            fault.act()
        return [fault.name for fault in due]

    def nobody_could_answer(self, began: float, ended: float) -> bool:
        """Return True if at some moment in that time no worker was up and known to be."""
        down = [one.down for one in self._environment.workers]
        moments = [began, *(begin for times in down for begin, _ in times if began < begin < ended)]
        return any(
            all(any(begin <= moment < end + _NOTICED_S for begin, end in times) for times in down)
            for moment in moments
        )

    def _kill(self, worker: Worker) -> Callable[[], None]:
        def kill() -> None:
            worker.kill()
            self.kills += 1

        return kill

    def _kill_all(self) -> None:
        for worker in self._environment.workers:
            worker.kill()
            self.kills += 1

    def _start_all(self) -> None:
        for worker in self._environment.workers:
            worker.start()


def _between(
    begin: float, end: float, name: str, start: Callable[[], None], stop: Callable[[], None]
) -> list[Fault]:
    return [Fault(begin, name, start), Fault(end, f"{name}: over", stop)]


def _switch(workers: list[Worker], name: str) -> tuple[Callable[[], None], Callable[[], None]]:
    def switch(is_on: bool) -> None:
        for worker in workers:
            try:
                httpx.post(
                    f"{worker.url}/fault", json={name: is_on}, timeout=TIMEOUT_S, trust_env=False
                )
            except httpx.TransportError:  # it is down
                continue

    return lambda: switch(True), lambda: switch(False)
