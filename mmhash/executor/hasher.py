"""`AsyncHasher`: computes keys without blocking the event loop for longer than a time slice."""

import asyncio
from collections.abc import Collection, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter
from typing import Any, Self

from mmhash.arguments import check_int
from mmhash.cpu import cpu_count
from mmhash.digest import Algorithm, Digest, check_algorithm
from mmhash.errors import ClosedError, InputTypeError, MMHashError
from mmhash.executor.items import ItemCost, cost_of, identity_of
from mmhash.executor.jobs import Job, JobOptions, Outcome, read_items, stream_of
from mmhash.framing import check_tenant
from mmhash.split import LISTS

# The loop itself hashes host items up to this size: handing them to a thread would block the loop
# for longer. Finding and framing a part of a list costs as much as hashing _PART_BYTES.
INLINE_MAX_BYTES = 64 << 10
_PART_BYTES = 8 << 10
# From this size on, all threads share one item if no other job is waiting. Sharing smaller items
# costs more than it gains.
PARALLEL_MIN_BYTES = 4 << 20
# How long all calls together may work in one round of the loop before other tasks get their turn.
_SLICE_S = 0.5e-3


class AsyncHasher:
    """Keys of items, computed without stalling the event loop.

    A hasher belongs to the event loop that first uses it: create one in each process. Items must
    not change until the call returns. After that, even if the call was cancelled, nothing reads
    them any more.

    Args:
        max_inflight_bytes: How many bytes may be read at one time; a larger item is read by itself.
            The queue has no limit.
        threads: The number of threads that read; by default all cores but one.

    >>> async def main():
    ...     async with AsyncHasher() as hasher:
    ...         return await hasher.keys([b"abc", b"def"])
    >>> asyncio.run(main()) == mmhash.keys([b"abc", b"def"])
    True
    """

    def __init__(self, *, max_inflight_bytes: int = 256 << 20, threads: int | None = None) -> None:
        self._limit = check_int("max_inflight_bytes", max_inflight_bytes, 1)
        self._threads = max(1, cpu_count() - 1) if threads is None else threads
        check_int("threads", self._threads, 1)
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="mmhash-executor")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        # The jobs in order. Dicts, because a cancelled call removes its jobs from anywhere.
        self._waiting: dict[Job, None] = {}
        self._running: dict[Job, None] = {}
        self._running_bytes = 0
        # For the identity of each item in flight: the item's job, and the item's index in the job.
        self._in_flight: dict[Hashable, tuple[Job, int]] = {}
        self._turn = asyncio.Lock()  # held by the call that is starting its items
        self._slice_ends: float | None = None

    def __repr__(self) -> str:
        return f"<AsyncHasher of {self._threads} threads{', closed' if self._closed else ''}>"

    async def keys(
        self,
        items: Iterable[Any],
        *,
        algorithm: Algorithm = "blake3",
        tenant: bytes | None = None,
    ) -> list[Digest]:
        """Return the keys that `mmhash.keys` returns, in the order of the items.

        The first error names its item, and is raised once no item of the call is being read. The
        items of an iterator are hashed one after another, because they may share one buffer. If
        each item has its own memory, pass a list: then threads share the work.
        """
        if not isinstance(items, (*LISTS, Iterator)):
            raise InputTypeError(f"keys() takes a list of items, not one {type(items).__name__}")
        options = JobOptions(check_algorithm(algorithm), tenant)
        outcomes: list[Outcome] = []
        if isinstance(items, Iterator):
            for item in items:
                outcomes += await self._hash([item], options)
        else:
            outcomes = await self._hash(list(items), options)
        results: list[Digest] = []
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, Exception):
                raise _with_index(index, outcome)
            results.append(outcome)
        return results

    async def key(
        self, item: Any, *, algorithm: Algorithm = "blake3", tenant: bytes | None = None
    ) -> Digest:
        """Return the key that `mmhash.key` returns."""
        (outcome,) = await self._hash([item], JobOptions(check_algorithm(algorithm), tenant))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Refuse new calls, fail waiting calls, and return when no item is being read."""
        if self._loop is not None and not self._loop.is_closed():
            self._check_loop()
            for job in [*self._waiting]:
                del self._waiting[job]
                self._resolve(job, [_closed_error()] * len(job.items))
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _hash(self, items: list[Any], options: JobOptions) -> list[Outcome]:
        """Return the key or the error of each item.

        Small items are hashed here. Larger items become jobs, which calls for the same item share.
        """
        check_tenant(options.tenant)  # raises for the call, not for each item
        loop = self._check_loop()
        outcomes: list[Outcome | tuple[Job, int]] = []
        jobs: dict[Job, None] = {}  # jobs that this call waits for
        on_gpu: dict[int, Job] = {}  # by GPU, the job that still accepts items
        try:
            async with self._turn:
                for item in items:
                    outcomes.append(self._start(item, options, jobs, on_gpu))
                    if self._slice_is_over(loop):
                        await asyncio.sleep(0)
                for job in on_gpu.values():
                    self._enqueue(job)
            for job in jobs:
                await asyncio.shield(job.future)  # other calls may wait for the same job
        except BaseException as error:
            self._withdraw(jobs)
            if isinstance(error, (Exception, asyncio.CancelledError)):
                await self._wait_until_read(jobs)
            raise
        return [
            outcome[0].future.result()[outcome[1]] if isinstance(outcome, tuple) else outcome
            for outcome in outcomes
        ]

    def _check_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, which becomes the hasher's loop; refuse any other loop."""
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            raise MMHashError("this AsyncHasher belongs to another event loop: make one for each")
        return loop

    def _start(
        self, item: Any, options: JobOptions, jobs: dict[Job, None], on_gpu: dict[int, Job]
    ) -> Outcome | tuple[Job, int]:
        """Hash an item if that is quick; otherwise return its place in a job."""
        if self._closed:  # by another task, while this call waited for its turn
            raise _closed_error()
        cost = cost_of(item)
        if _is_inline(cost):
            return read_items([item], options)[0]
        identity = (identity_of(item), options)
        place = self._in_flight.get(identity)
        if place is None:
            place = self._add_to_job(item, cost, options, on_gpu)
            place[0].identities.append(identity)
            self._in_flight[identity] = place
            if cost.device is None:
                self._enqueue(place[0])
        job = place[0]
        if job not in jobs:
            jobs[job] = None
            job.callers += 1
        return place

    def _add_to_job(
        self, item: Any, cost: ItemCost, options: JobOptions, on_gpu: dict[int, Job]
    ) -> tuple[Job, int]:
        """Add an item on a GPU to the call's job for that GPU, which is one launch.

        Any other item gets a new job.
        """
        if cost.device is None:
            job = Job(options)
        else:
            job = on_gpu.get(cost.device) or Job(options, stream_of(cost.device))
            if job.items and job.nbytes + cost.nbytes > self._limit:
                self._enqueue(job)
                job = Job(options, stream_of(cost.device))
            on_gpu[cost.device] = job
        job.items.append(item)
        job.nbytes += cost.nbytes
        return job, len(job.items) - 1

    def _slice_is_over(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return True if all calls together have used up the time slice of this round."""
        now = perf_counter()
        if self._slice_ends is None:
            self._slice_ends = now + _SLICE_S
            loop.call_soon(self._begin_slice)  # next round, before the calls that sleep until then
        return now > self._slice_ends

    def _begin_slice(self) -> None:
        self._slice_ends = None

    def _enqueue(self, job: Job) -> None:
        self._waiting[job] = None
        self._admit()

    def _admit(self) -> None:
        """Start the jobs at the head of the queue that fit; no later job overtakes the head."""
        while self._waiting and len(self._running) < self._threads:
            job = next(iter(self._waiting))
            if self._running and self._running_bytes + job.nbytes > self._limit:
                return
            del self._waiting[job]
            self._running[job] = None
            self._running_bytes += job.nbytes
            is_only_job = len(self._running) == 1 and not self._waiting
            threads = self._threads if is_only_job and job.nbytes >= PARALLEL_MIN_BYTES else 1
            try:
                self._pool.submit(self._run, job, threads, asyncio.get_running_loop())
            except RuntimeError as error:  # no thread can be started, or the interpreter is exiting
                no_thread = MMHashError(f"no thread can hash the item: {error}")
                self._on_read(job, [no_thread] * len(job.items))

    def _run(self, job: Job, threads: int, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: read the items of a job, and hand the outcomes to the loop."""
        outcomes = read_items(job.items, job.options, threads, job.stream)
        with suppress(RuntimeError):  # the loop was closed: no call waits
            loop.call_soon_threadsafe(self._on_read, job, outcomes)

    def _on_read(self, job: Job, outcomes: list[Outcome]) -> None:
        """On the loop: take the outcomes of a job, and start the next jobs."""
        if job not in self._running:  # given up when no thread could be started
            return
        del self._running[job]
        self._running_bytes -= job.nbytes
        self._resolve(job, outcomes)
        self._admit()

    def _resolve(self, job: Job, outcomes: list[Outcome]) -> None:
        self._forget(job)
        job.future.set_result(outcomes)

    def _forget(self, job: Job) -> None:
        """Drop a job's items; no later call joins it."""
        for identity in job.identities:
            del self._in_flight[identity]
        job.items.clear()

    def _withdraw(self, jobs: Collection[Job]) -> None:
        """End a caller's interest in its jobs, and drop the jobs that no call waits for."""
        for job in jobs:
            job.callers -= 1
            if job.callers or job in self._running or job.future.done():
                continue
            if job in self._waiting:
                del self._waiting[job]
            self._forget(job)
        self._admit()

    async def _wait_until_read(self, jobs: Collection[Job]) -> None:
        """Wait until no thread reads an item of these jobs, however often the wait is cancelled."""
        for job in jobs:
            while job in self._running:
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(job.future)


def _is_inline(cost: ItemCost) -> bool:
    """Return True if the loop hashes the item itself."""
    nbytes = cost.nbytes + (cost.parts - 1) * _PART_BYTES
    return cost.in_place and cost.device is None and nbytes <= INLINE_MAX_BYTES


def _with_index(index: int, error: Exception) -> Exception:
    """Add the item's index to an error's message, or to its notes."""
    if isinstance(error, MMHashError) and type(error).__module__ == MMHashError.__module__:
        named = type(error)(f"item {index}: {error}")
        named.__cause__ = error.__cause__
        return named
    error.add_note(f"item {index}")
    return error


def _closed_error() -> ClosedError:
    return ClosedError("this AsyncHasher is closed")
