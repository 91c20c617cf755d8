"""Who is hashed next: in the order of coming, within a limit of bytes and of threads.

Items up to `SMALL` have a lane of their own. The lane that has had fewer bytes is served next, so
that neither waits behind all of the other. Whoever is next and does not fit is waited for, not
passed by: a large item's turn comes too. What is larger than the limit has it for itself.
"""

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

SMALL = 1 << 20


class Sized(Protocol):
    """What has a share of the limit: so many bytes."""

    nbytes: int


J = TypeVar("J", bound=Sized)


class _Lane(Generic[J]):
    def __init__(self) -> None:
        self.waiting: OrderedDict[J, None] = OrderedDict()
        self.served = 0


class AdmissionQueue(Generic[J]):
    """Jobs that wait and jobs that run; it starts none itself and is used by one thread."""

    def __init__(self, limit: int, threads: int) -> None:
        self._limit = limit
        self._threads = threads
        self._small: _Lane[J] = _Lane()
        self._large: _Lane[J] = _Lane()
        self.running: set[J] = set()
        self.running_bytes = 0
        self.waiting_bytes = 0

    def __len__(self) -> int:
        return len(self._small.waiting) + len(self._large.waiting)

    @property
    def backlog(self) -> int:
        """The bytes of all that waits or runs."""
        return self.running_bytes + self.waiting_bytes

    def push(self, job: J) -> None:
        """Wait behind those who came before."""
        lane, other = self._lanes(job)
        if not lane.waiting:  # an idle lane saves up no turns
            lane.served = max(lane.served, other.served)
        lane.waiting[job] = None
        self.waiting_bytes += job.nbytes

    def discard(self, job: J) -> bool:
        """Wait no longer; False if it did not wait."""
        lane, _ = self._lanes(job)
        if job not in lane.waiting:
            return False
        del lane.waiting[job]
        self.waiting_bytes -= job.nbytes
        return True

    def admit(self) -> J | None:
        """The next job that may run now, its share taken; None if there is none."""
        lanes = [lane for lane in (self._small, self._large) if lane.waiting]
        if not lanes or len(self.running) == self._threads:
            return None
        lane = min(lanes, key=lambda lane: lane.served)
        job = next(iter(lane.waiting))
        if self.running and self.running_bytes + job.nbytes > self._limit:
            return None
        self.discard(job)
        lane.served += job.nbytes
        self.running.add(job)
        self.running_bytes += job.nbytes
        return job

    def release(self, job: J) -> None:
        """Give back the share of a job that runs no more."""
        self.running.remove(job)
        self.running_bytes -= job.nbytes

    def drain(self) -> list[J]:
        """Send away all who wait, and name them."""
        waiting = [*self._small.waiting, *self._large.waiting]
        for job in waiting:
            self.discard(job)
        return waiting

    def _lanes(self, job: J) -> tuple[_Lane[J], _Lane[J]]:
        """The lane of a job, and the other one."""
        if job.nbytes <= SMALL:
            return self._small, self._large
        return self._large, self._small
