"""A thread pool for work that would block the event loop, with a time limit."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from mmhash.cpu import cpu_count
from mmhash_service.api.problems import Problem

P = ParamSpec("P")
T = TypeVar("T")


class WorkerPool:
    """The threads, and the time limit of a job, including its time in the queue."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(cpu_count(), thread_name_prefix="mmhash-work")

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` in a thread, and return its result or raise the problem `too-slow`."""
        future = self._threads.submit(function, *args, **kwargs)
        # After the time-out the thread still ends its job, whose work is bounded. Its result is
        # ignored, and it starts no other job before.
        done, _ = await asyncio.wait(
            {waiting := asyncio.wrap_future(future)}, timeout=self._timeout_s
        )
        if not done:
            waiting.cancel()
            raise Problem("too-slow")
        return waiting.result()

    def stop(self) -> None:
        """Start no more jobs, and cancel those in the queue."""
        self._threads.shutdown(wait=False, cancel_futures=True)
