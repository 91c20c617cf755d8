"""A FIFO queue of jobs, admitted within a limit of bytes and of threads.

Items up to `SMALL` have a lane of their own. The lane that was served fewer bytes is next, so
neither waits behind all of the other. The head of the queue blocks until it fits, so that a large
item has its turn too. An item larger than the limit runs by itself.
"""

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

SMALL = 1 << 20


class Sized(Protocol):
    """A job that takes `nbytes` of the limit."""

    nbytes: int


J = TypeVar("J", bound=Sized)


class _Lane(Generic[J]):
    def __init__(self) -> None:
        self.waiting: OrderedDict[J, None] = OrderedDict()
        self.served = 0


class AdmissionQueue(Generic[J]):
    """The jobs that wait and those that run. It starts none itself; one thread uses it."""

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
        """The bytes of all jobs, waiting and running."""
        return self.running_bytes + self.waiting_bytes

    def push(self, job: J) -> None:
        """Append a job to its lane."""
        lane, other = self._lanes(job)
        if not lane.waiting:  # an idle lane gathers no credit
            lane.served = max(lane.served, other.served)
        lane.waiting[job] = None
        self.waiting_bytes += job.nbytes

    def discard(self, job: J) -> bool:
        """Remove a waiting job; return False if it did not wait."""
        lane, _ = self._lanes(job)
        if job not in lane.waiting:
            return False
        del lane.waiting[job]
        self.waiting_bytes -= job.nbytes
        return True

    def admit(self) -> J | None:
        """Take the next job if it may run now: it counts as running from then on."""
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
        """Give back the share of a job that has ended."""
        self.running.remove(job)
        self.running_bytes -= job.nbytes

    def drain(self) -> list[J]:
        """Remove all waiting jobs, and return them."""
        waiting = [*self._small.waiting, *self._large.waiting]
        for job in waiting:
            self.discard(job)
        return waiting

    def _lanes(self, job: J) -> tuple[_Lane[J], _Lane[J]]:
        """Return the lane of a job, and the other one."""
        if job.nbytes <= SMALL:
            return self._small, self._large
        return self._large, self._small
