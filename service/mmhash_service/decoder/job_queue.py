"""The queue of a decoder pool: the cheapest job first, and a maximum cost for each decoder."""

import asyncio
import heapq
from bisect import insort
from dataclasses import dataclass, field
from itertools import count

from mmhash_service.decoder.messages import Answer, ImageJob


@dataclass(order=True)
class QueuedJob:
    """A queued job, ordered by cost, then by age."""

    cost_s: float
    number: int
    job: ImageJob = field(compare=False)
    body: memoryview = field(compare=False)
    answer: asyncio.Future[Answer] = field(compare=False)
    is_retried: bool = field(default=False, compare=False)


class JobQueue:
    """A priority queue of jobs. Each slot that takes jobs has a maximum cost."""

    def __init__(self) -> None:
        self._jobs: list[QueuedJob] = []
        # The slots that wait for a job, the one with the lowest maximum cost first.
        self._slots: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def put(self, job: QueuedJob) -> None:
        """Add a job."""
        heapq.heappush(self._jobs, job)
        self._wake()

    async def get(self, max_cost_s: float) -> QueuedJob:
        """Wait for a job that costs at most `max_cost_s`, and take the cheapest."""
        while not (self._jobs and self._jobs[0].cost_s <= max_cost_s):
            slot = (max_cost_s, next(self._numbers), asyncio.get_running_loop().create_future())
            insort(self._slots, slot)
            await slot[2]
        job = heapq.heappop(self._jobs)
        self._wake()
        return job

    def _wake(self) -> None:
        """Wake a slot for the cheapest job. That slot then wakes the next."""
        for slot in self._slots:
            if self._jobs and self._jobs[0].cost_s <= slot[0]:
                self._slots.remove(slot)
                slot[2].set_result(None)
                return
