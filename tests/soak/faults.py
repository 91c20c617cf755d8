"""The faults, each at its part of the run."""

import os
import random
import resource
import signal
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from tests.soak.environment import Environment, Service
from tests.support.redis import RedisServer

# Workers are killed in the first fifth alone: those that live on then have the rest of the run to
# grow to their size and to leak, for each kill would hide what its worker had leaked.
_KILLS = (0.03, 0.06, 0.09, 0.12, 0.15, 0.18)
# In the second half a store is away around its middle, so that what that takes and gives back (a
# service without its SQLite file has 6 descriptors fewer) tilts no trend.
_REDIS_GONE = ((0.1, 0.16), (0.7, 0.8))
_REDIS_HANGS = ((0.4, 0.45),)
_DISK_FULL = ((0.22, 0.28), (0.38, 0.44), (0.71, 0.79))

# No file of a process may grow beyond this: less than what SQLite writes at once.
_FULL = 4096


class Fault(NamedTuple):
    """Something done to a service after that part of the run."""

    at: float
    name: str
    service: Service
    act: Callable[[], None]


class Faults:
    """All of them."""

    def __init__(self, environment: Environment) -> None:
        self._services = environment.services
        redis = environment.redis
        self._outages = [
            Outage("Redis gone", environment.on_redis, redis.kill, redis.start, _REDIS_GONE),
            Outage("Redis hangs", environment.on_redis, *_stopped(redis), _REDIS_HANGS),
            Outage(
                "disk full", environment.on_sqlite, *_full_disk(environment.on_sqlite), _DISK_FULL
            ),
        ]
        kills = zip(_KILLS, cycle(environment.services), strict=False)
        self._to_come = [Fault(at, "worker killed", of, _kill(of)) for at, of in kills]
        self._to_come += [fault for outage in self._outages for fault in outage.faults()]
        self._to_come.sort(key=lambda fault: fault.at)

    def act(self, part: float) -> list[Fault]:
        """Do those that are due after that part of the run."""
        due = [fault for fault in self._to_come if fault.at <= part]
        del self._to_come[: len(due)]
        for fault in due:
            fault.act()
        return due

    def unfelt(self) -> list[str]:
        """Return the faults that the services did not notice: these proved nothing."""
        killed = sum(service.killed_workers() for service in self._services)
        found = [f"{len(_KILLS) - killed} kills of a worker"] if killed != len(_KILLS) else []
        missed = {one.service.name for one in self._outages if one.failures}
        stores = [service.name for service in self._services if service.name not in missed]
        return found + [f"that {name} was away" for name in stores]


class Outage:
    """Times in which the store of a service's memo does not work."""

    def __init__(
        self,
        name: str,
        service: Service,
        begin: Callable[[], None],
        end: Callable[[], None],
        times: tuple[tuple[float, float], ...],
    ) -> None:
        self.service, self._name, self._times = service, name, times
        self._begin, self._end = begin, end
        # How many operations of the memo's store failed in these times.
        self.failures = 0.0

    def faults(self) -> list[Fault]:
        """Each beginning and each end."""
        return [
            fault
            for begin, end in self._times
            for fault in (
                Fault(begin, self._name, self.service, self._start),
                Fault(end, f"{self._name}: over", self.service, self._stop),
            )
        ]

    def _start(self) -> None:
        self._before = self._failed()
        self._begin()

    def _stop(self) -> None:
        self.failures += self._failed() - self._before
        self._end()

    def _failed(self) -> float:
        return self.service.count("mmhash_memo_failures_total")


_Switch = tuple[Callable[[], None], Callable[[], None]]


def _kill(service: Service) -> Callable[[], None]:
    return lambda: os.kill(random.choice(service.workers), signal.SIGKILL)


def _stopped(redis: RedisServer) -> _Switch:
    return redis.freeze, redis.thaw


def _has_decoders(pid: int) -> bool:
    """Return True if a worker has started: until then it makes files that are not the memo's."""
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def _full_disk(service: Service) -> _Switch:
    """A full disk, without one: writes to files by the service's workers fail.

    The hard limit stays, so that the soft one can be lifted again.
    """

    def limit(nbytes: int) -> None:
        for pid in filter(_has_decoders, service.workers):
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (nbytes, hard))

    return lambda: limit(_FULL), lambda: limit(resource.RLIM_INFINITY)
