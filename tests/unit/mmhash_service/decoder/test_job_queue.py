"""The order in which decoders get their jobs."""

import asyncio

from mmhash_service.decoder import costs
from mmhash_service.decoder.job_queue import JobQueue, QueuedJob


def test_jobs_that_cost_less_go_before_those_that_cost_more() -> None:
    async def order() -> list[int]:
        queue = JobQueue()
        for number, cost_s in enumerate([0.0, 9.0, 3.0, 0.0, 3.0]):
            await queue.put(QueuedJob(cost_s, number, None, None, 0.0, None))  # type: ignore[arg-type]
        short = [(await queue.get(costs.SHORT_S)).number for _ in range(2)]
        waiting = asyncio.create_task(queue.get(costs.SHORT_S))
        long = [(await queue.get(float("inf"))).number for _ in range(3)]
        assert not waiting.done()
        await queue.put(QueuedJob(0.5, 5, None, None, 0.0, None))  # type: ignore[arg-type]
        return [*short, *long, (await waiting).number]

    assert asyncio.run(order()) == [0, 3, 2, 4, 1, 5]
