"""The work of one request that waits for decoders and hosts: a few jobs at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

_CONCURRENCY = 8
"""The images and URLs of one request that are decoded or fetched at the same time."""


async def run_few(jobs: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run jobs, a few at the same time; the first error cancels the others and is raised."""
    semaphore = asyncio.Semaphore(_CONCURRENCY)

    async def run(job: Callable[[], Awaitable[None]]) -> None:
        async with semaphore:
            await job()

    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(run(job))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed.exceptions[0].__cause__
