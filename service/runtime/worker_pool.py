"""What takes longer than the event loop may: done by a few threads, in a bounded time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from mmhash.cpu import cpu_count
from mmhash_service.api.problems import Problem

P = ParamSpec("P")
T = TypeVar("T")


class WorkerPool:
    """The threads, and how long a call waits for one and for its answer."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(cpu_count(), thread_name_prefix="mmhash-work")

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What `function` gives, if it does so in time."""
        future = self._threads.submit(function, *args, **kwargs)
        # A thread that is too late ends all the same, for what it works on is bounded: nobody
        # waits for it, and its place is not given away before.
        done, _ = await asyncio.wait(
            {waiting := asyncio.wrap_future(future)}, timeout=self._timeout_s
        )
        if not done:
            waiting.cancel()
            raise Problem("too-slow")
        return waiting.result()

    def stop(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
