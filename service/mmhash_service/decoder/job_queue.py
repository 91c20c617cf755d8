"""The queue of a decoder pool: the cheapest job first, and a maximum cost for each decoder."""

import asyncio
import heapq
from dataclasses import dataclass, field

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
        self._changed = asyncio.Condition()

    async def put(self, job: QueuedJob) -> None:
        """Add a job."""
        async with self._changed:
            heapq.heappush(self._jobs, job)
            self._changed.notify_all()

    async def get(self, max_cost_s: float) -> QueuedJob:
        """Wait for a job that costs at most `max_cost_s`, and take the cheapest."""
        async with self._changed:
            while not (self._jobs and self._jobs[0].cost_s <= max_cost_s):
                await self._changed.wait()
            return heapq.heappop(self._jobs)
