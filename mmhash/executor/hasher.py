"""`AsyncHasher`: keys for an event loop, without blocking it for longer than a time slice."""

import asyncio
import threading
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, overload

from mmhash.arguments import check_choice, check_int
from mmhash.cpu import cpu_count
from mmhash.digest import Digest, check_algorithm
from mmhash.errors import InputTypeError, MMHashError
from mmhash.executor.admission import AdmissionQueue
from mmhash.executor.item_cost import ItemCost, cost_of, identity_of
from mmhash.executor.job import Job, Options, Outcome, item_error
from mmhash.executor.lazy import LazyKey
from mmhash.executor.placement import PARALLEL_MIN_BYTES, Placement
from mmhash.framing import tenant_key
from mmhash.hashing import key
from mmhash.split import LISTS

# All calls together work this long in one round of the loop, before other tasks have their turn.
_SLICE_S = 0.5e-3


class Stats(NamedTuple):
    """The current load of a hasher, and its counters since it was made."""

    running: int
    running_bytes: int
    waiting: int
    waiting_bytes: int
    inline: int  # hashed on the loop
    threaded: int  # hashed in a thread, or on a GPU
    joined: int  # shared the job of the same item
    deferred: int  # returned as a LazyKey
    failed: int


class AsyncHasher:
    """Keys of items, computed without stalling the event loop.

    A hasher belongs to the event loop that first uses it. Items must not change until the call
    returns; after that, even if it was cancelled, nothing reads them for it.

    Args:
        threads: The number of items that are read at one time; by default all cores but one.
        max_inflight_bytes: Their bytes together; a larger item is read by itself. The queue has no
            limit.
        on_pressure: With `"defer"`, a call that would raise the backlog above
            `max_inflight_bytes` returns `LazyKey`s at once, except for items of an iterator.
        device: The place where host data is hashed: `auto`, `cpu`, `cuda` or `cuda:1`;
            MMHASH_DEVICE replaces `auto`.

    >>> async def main():
    ...     async with AsyncHasher() as hasher:
    ...         return await hasher.keys([b"abc", b"def"])
    >>> asyncio.run(main()) == mmhash.keys([b"abc", b"def"])
    True
    """

    def __init__(
        self,
        *,
        max_inflight_bytes: int = 256 << 20,
        threads: int | None = None,
        device: str = "auto",
        on_pressure: Literal["wait", "defer"] = "wait",
    ) -> None:
        if threads is None:
            threads = max(1, cpu_count() - 1)
        check_int("max_inflight_bytes", max_inflight_bytes, 1)
        check_int("threads", threads, 1)
        check_choice("on_pressure", on_pressure, "wait", "defer")
        self._threads = threads
        self._defers = on_pressure == "defer"
        self._placement = Placement(device, threads)
        self._limit = max_inflight_bytes
        self._closed = False
        self._inline = self._threaded = self._joined = self._deferred = self._failed = 0
        self._queue: AdmissionQueue[Job] = AdmissionQueue(self._limit, self._threads)
        self._jobs: dict[Hashable, Job] = {}
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="mmhash-executor")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slice_ends: float | None = None
        self._turn = asyncio.Lock()

    @overload
    async def keys(
        self,
        items: Iterable[Any],
        *,
        algorithm: str = ...,
        tenant: bytes | None = ...,
        return_errors: Literal[False] = ...,
    ) -> list[Digest]: ...
    @overload
    async def keys(
        self,
        items: Iterable[Any],
        *,
        algorithm: str = ...,
        tenant: bytes | None = ...,
        return_errors: Literal[True],
    ) -> list[Digest | Exception]: ...
    async def keys(
        self,
        items: Iterable[Any],
        *,
        algorithm: str = "blake3",
        tenant: bytes | None = None,
        return_errors: bool = False,
    ) -> list[Digest] | list[Digest | Exception]:
        """Return the keys that `mmhash.keys` returns, in the order of the items.

        The first error is raised when nothing of the call is read any more, and names its item.
        With `return_errors=True` an error takes its item's place, and the other items have keys.
        The items of an iterator are hashed one after another, because they may share one buffer:
        threads then share no work, and each item takes up to 1.7 times the CPU time (4 KiB; 1.3
        times for 1 MiB). If each has its own memory, pass a list.
        """
        if not isinstance(items, (*LISTS, Iterator)):
            raise InputTypeError(f"keys() takes a list of items, not one {type(items).__name__}")
        options = Options(check_algorithm(algorithm), tenant)
        outcomes: list[Outcome] = []
        if isinstance(items, Iterator):
            for item in items:
                # Not deferred: its buffer may have the next item when its key is asked for.
                outcomes += await self._hash([item], options, may_defer=False)
        else:
            outcomes += await self._hash(list(items), options)
        results: list[Digest | Exception] = [
            _with_index(index, outcome) if isinstance(outcome, Exception) else outcome
            for index, outcome in enumerate(outcomes)
        ]
        return results if return_errors else _raise_first_error(results)

    async def key(
        self, item: Any, *, algorithm: str = "blake3", tenant: bytes | None = None
    ) -> Digest:
        """Return the key that `mmhash.key` returns."""
        outcomes = await self._hash([item], Options(check_algorithm(algorithm), tenant))
        return _raise_first_error(outcomes)[0]

    async def close(self) -> None:
        """Refuse new calls, fail those that wait, and return when no item is read any more."""
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            if not self._loop.is_closed():
                raise _another_loop_error()
            # The callers ended with their loop, but items may still be read.
            self._closed = True
            await asyncio.to_thread(self._pool.shutdown)
            return
        self._closed = True
        for job in self._queue.drain():
            self._resolve(job, _closed_error())
        try:
            await self._wait_until_read(list(self._queue.running))
        finally:
            self._pool.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def stats(self) -> Stats:
        """Return the current load, and the counters."""
        return Stats(
            len(self._queue.running),
            self._queue.running_bytes,
            len(self._queue),
            self._queue.waiting_bytes,
            self._inline,
            self._threaded,
            self._joined,
            self._deferred,
            self._failed,
        )

    async def _hash(
        self, items: list[Any], options: Options, *, may_defer: bool = True
    ) -> Sequence[Outcome]:
        """Return the key or the error of each item.

        Small items are hashed here; the others become jobs, which calls for the same item share.
        """
        loop = self._check_call(options)
        if may_defer and self._defers and self._exceeds_limit(items, options):
            self._deferred += len(items)
            return [LazyKey(partial(key, item, **options._asdict())) for item in items]
        outcomes: dict[int, Outcome] = {}
        jobs: dict[int, Job] = {}
        try:
            async with self._turn:
                for index, item in enumerate(items):
                    self._start_item(index, item, options, outcomes, jobs)
                    if self._slice_is_over(loop):
                        await asyncio.sleep(0)
            for index, job in jobs.items():
                # Shielded, because other calls may wait for the same job.
                outcomes[index] = await asyncio.shield(job.future)
        except BaseException as error:
            self._withdraw(jobs.values())
            if isinstance(error, asyncio.CancelledError):
                await self._wait_until_read(jobs.values())
            raise
        return [outcomes[index] for index in range(len(items))]

    def _check_call(self, options: Options) -> asyncio.AbstractEventLoop:
        """Refuse a call that is wrong itself, and return the loop that it runs in."""
        if options.tenant is not None:
            tenant_key(options.tenant)  # a wrong one is the call's error, not each item's
        if self._closed:
            raise _closed_error()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            with suppress(RuntimeError):  # no thread can be started: the rates stay assumed
                self._pool.submit(self._placement.measure)
        elif self._loop is not loop:
            raise _another_loop_error()
        return loop

    def _exceeds_limit(self, items: list[Any], options: Options) -> bool:
        """Return True if the items would raise the backlog above the limit."""
        if not self._queue.backlog:
            return False
        nbytes = 0
        for item in items:
            try:
                cost = cost_of(item)
            except (KeyboardInterrupt, SystemExit):  # as in _start_item
                raise
            except BaseException:  # noqa: BLE001, S112  (hashing it reports why)
                continue
            if not self._placement.is_inline(cost, options.algorithm):
                nbytes += cost.nbytes
        return nbytes > 0 and self._queue.backlog + nbytes > self._limit

    def _start_item(
        self,
        index: int,
        item: Any,
        options: Options,
        outcomes: dict[int, Outcome],
        jobs: dict[int, Job],
    ) -> None:
        """Hash an item if that is quick, else submit its job."""
        if self._closed:  # meanwhile, by another task
            outcomes[index] = _closed_error()
            return
        try:
            cost = cost_of(item)
            if self._placement.is_inline(cost, options.algorithm):
                self._inline += 1
                outcomes[index] = key(item, algorithm=options.algorithm, tenant=options.tenant)
            else:
                jobs[index] = self._submit(item, cost, options)
        except (KeyboardInterrupt, SystemExit):  # on the loop's thread they may be the user's
            raise
        except BaseException as error:  # noqa: BLE001  (handed to the caller)
            self._failed += 1
            outcomes[index] = item_error(error)

    def _slice_is_over(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return True if all calls together have used this round's time slice.

        Starting 128 calls takes 2 ms, which would otherwise be one stall of the loop.
        """
        now = perf_counter()
        if self._slice_ends is None:
            self._slice_ends = now + _SLICE_S
            loop.call_soon(self._begin_slice)  # next round, before the calls that sleep until then
        return now > self._slice_ends

    def _begin_slice(self) -> None:
        self._slice_ends = None

    def _submit(self, item: Any, cost: ItemCost, options: Options) -> Job:
        """Return the item's job: one that is in flight already, or a new one."""
        identity = (identity_of(item), options)
        job = self._jobs.get(identity)
        if job is None:
            target = self._placement.target(cost, options.algorithm)
            job = self._jobs[identity] = Job(item, cost, target, identity, options)
            self._queue.push(job)
            self._admit()
        else:
            self._joined += 1
        job.callers += 1
        return job

    def _admit(self) -> None:
        """Start the jobs at the head of the queue for which there is capacity."""
        loop = self._loop
        while loop is not None and (job := self._queue.admit()) is not None:
            is_only_job = len(self._queue.running) == 1 and not len(self._queue)
            threads = self._threads if is_only_job and job.nbytes >= PARALLEL_MIN_BYTES else 1
            claim = threading.Lock()
            try:
                self._pool.submit(job.run, threads, claim, loop, self._on_done)
            except RuntimeError as error:  # no thread can be started, or the interpreter ends
                # The job may still be in the queue of the pool's other threads.
                if claim.acquire(blocking=False):
                    self._queue.release(job)
                    self._resolve(job, MMHashError(f"no thread hashes the item: {error}"))

    def _on_done(self, job: Job, result: Outcome) -> None:
        """Take a job's result on the loop, and start the next jobs."""
        self._queue.release(job)
        self._threaded += 1
        self._resolve(job, result)
        self._admit()

    def _resolve(self, job: Job, outcome: Outcome) -> None:
        del self._jobs[job.identity]
        self._failed += isinstance(outcome, Exception)
        job.future.set_result(outcome)

    def _withdraw(self, jobs: Collection[Job]) -> None:
        """End a caller's interest in its jobs, and drop those that no call waits for."""
        for job in jobs:
            job.callers -= 1
            if not job.callers and self._queue.discard(job):
                del self._jobs[job.identity]
        self._admit()

    async def _wait_until_read(self, jobs: Collection[Job]) -> None:
        """Wait until no thread reads an item of these jobs, however often that is cancelled."""
        cancelled = None
        for job in jobs:
            while job in self._queue.running:
                try:
                    await asyncio.shield(job.future)
                except asyncio.CancelledError as error:
                    cancelled = error
        if cancelled is not None:
            raise cancelled


def _with_index(index: int, error: Exception) -> Exception:
    """Add the index of its item to an error's message, or to its notes."""
    if isinstance(error, MMHashError) and type(error).__module__ == MMHashError.__module__:
        named = type(error)(f"item {index}: {error}")
        named.__cause__ = error.__cause__
        return named
    error.add_note(f"item {index}")
    return error


def _raise_first_error(outcomes: Sequence[Outcome]) -> list[Digest]:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, Digest)]


def _closed_error() -> MMHashError:
    return MMHashError("this AsyncHasher is closed")


def _another_loop_error() -> MMHashError:
    return MMHashError("this AsyncHasher belongs to another event loop: make one for each")
