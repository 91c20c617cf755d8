"""The work of one request: a few jobs that wait at the same time, and short turns of long work."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

_CONCURRENCY = 8
"""The images and URLs of one request that are decoded or fetched at the same time."""

TURN = 32
"""The items of one request that are made in one turn of the event loop."""


async def end_turn(count: int) -> None:
    """Let other requests have a turn of the event loop after each TURN of `count` items."""
    if count % TURN == 0:
        await asyncio.sleep(0)


async def run_few(jobs: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run jobs, a few at the same time; the first error cancels the others and is raised."""
    semaphore = asyncio.Semaphore(_CONCURRENCY)

    async def run(job: Callable[[], Awaitable[None]]) -> None:
        async with semaphore:
            await job()

    error: Exception | None = None
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(run(job))
    except ExceptionGroup as failed:
        error = failed.exceptions[0]
        failed.__traceback__ = None
    # Without cycles of errors and frames: these would keep the body until they are collected.
    if error is not None:
        try:
            raise error
        finally:
            del error
