"""Work beside the event loop: threads with a time limit, and a few jobs at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from mmhash.cpu import cpu_count
from mmhash_service.problems.problem import Problem

P = ParamSpec("P")
T = TypeVar("T")

INLINE_US = 1000
"""The event loop does jobs of up to this many microseconds itself: a thread would save little."""

LONG_PROMPT = 64 << 10
"""Above this many bytes a prompt is long."""

# One item counts as a text of this many bytes.
_ITEM_SIZE = 16 << 10


class ThreadPool:
    """Threads with a time limit for each job. The limit includes the wait in the queue."""

    def __init__(self, timeout_s: float, threads: int | None = None) -> None:
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(threads or cpu_count(), thread_name_prefix="mmhash-work")

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` in a thread. Return its result, or raise the problem `too-slow`."""
        future = self._threads.submit(function, *args, **kwargs)
        # After the time-out the thread still finishes its job, whose work is bounded, before it
        # starts another. The result is ignored.
        done, _ = await asyncio.wait(
            {waiting := asyncio.wrap_future(future)}, timeout=self._timeout_s
        )
        if not done:
            waiting.cancel()
            raise Problem("too-slow")
        return waiting.result()

    async def run_sized(
        self, cost_us: float, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `function` at once if it is short, otherwise in a thread.

        `cost_us` is an upper estimate of its time on one core.
        """
        if cost_us <= INLINE_US:
            return function(*args, **kwargs)
        return await self.run(function, *args, **kwargs)

    def stop(self) -> None:
        """Start no more jobs, and cancel the queued ones."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class PromptPool:
    """Threads for prompts: plans, and the keys of blocks.

    A prompt of a million tokens takes seconds of CPU time and hundreds of megabytes. Therefore
    probes and other requests share no thread with prompts, and all long prompts share one thread:
    only one of them is in memory at a time.
    """

    def __init__(self, timeout_s: float) -> None:
        self.short = ThreadPool(timeout_s)
        self.long = ThreadPool(timeout_s, threads=1)
        # These threads only wait for the helper process, which has one thread.
        self.processors = ThreadPool(timeout_s, threads=2)

    def for_size(self, nbytes: int, media: int = 0) -> ThreadPool:
        """Return the threads for a prompt with this many bytes of text and this many media."""
        return self.long if nbytes + media * _ITEM_SIZE > LONG_PROMPT else self.short

    def stop(self) -> None:
        """Start no more jobs, and cancel the queued ones."""
        self.short.stop()
        self.long.stop()
        self.processors.stop()


_CONCURRENCY = 8
"""How many images and URLs of one request are decoded or fetched at the same time."""

TURN = 32
"""How many items of one request the event loop handles in one turn."""


async def end_turn(count: int) -> None:
    """Give other requests a turn of the event loop after every TURN of `count` items."""
    if count % TURN == 0:
        await asyncio.sleep(0)


async def run_few(jobs: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run jobs, a few at a time. The first error cancels the other jobs, and is raised."""
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
    # Leave no cycle of error and frame, which would keep the body alive until it is collected.
    if error is not None:
        try:
            raise error
        finally:
            del error
