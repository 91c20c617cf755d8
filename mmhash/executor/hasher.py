"""`AsyncHasher`: keys for an event loop, which it never holds for longer than a slice."""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, overload

from mmhash.cpu import cpu_count
from mmhash.digest import Algorithm, Digest, check_algorithm
from mmhash.errors import InputError, InputTypeError, InputValueError, MMHashError
from mmhash.executor.admission import AdmissionQueue
from mmhash.executor.item_cost import ItemCost, cost_of, identity_of
from mmhash.executor.lazy import LazyKey
from mmhash.executor.placement import WIDE_FROM, Device, Placement, hash_on
from mmhash.framing import tenant_key
from mmhash.hashing import key

Outcome = Digest | Exception

# How long a round of the loop works for all calls together, before others have their turn.
_SLICE = 0.5e-3


class Stats(NamedTuple):
    """What is under way now, and what was done since the start."""

    running: int
    running_bytes: int
    waiting: int
    waiting_bytes: int
    inline: int  # hashed on the loop
    threaded: int  # hashed in a thread, or on a GPU
    joined: int  # came while the same was in flight
    deferred: int  # left to whoever uses the key
    failed: int


class AsyncHasher:
    """Keys of items, without a stall of the event loop that asks for them.

    What waits is bounded by nothing but its callers; what is read at one time by `threads` (all
    cores but one) and by `max_inflight_bytes`, which an item that is larger has for itself.
    With `on_pressure="defer"` a call that would take the backlog over `max_inflight_bytes` gives
    `LazyKey`s at once. `device` is where host data is hashed: `auto`, `cpu`, `cuda` or `cuda:1`;
    `MMHASH_DEVICE` says it where nobody else did.

    A hasher belongs to the event loop that first uses it; in a forked child it begins anew, with
    threads of its own. Until a call has come back items must stay as they are; once it has, by
    whatever way, nothing reads them for it any more.
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
        _check_natural("max_inflight_bytes", max_inflight_bytes)
        _check_natural("threads", threads)
        if on_pressure not in {"wait", "defer"}:
            raise InputValueError(f"on_pressure is wait or defer, not {on_pressure!r}")
        self._threads = threads
        self._defers = on_pressure == "defer"
        self._placement = Placement(device, threads)
        self._limit = max_inflight_bytes
        self._closed = False
        self._start()
        _all.add(self)
        self._inline = self._threaded = self._joined = self._deferred = self._failed = 0

    def _start(self) -> None:
        """Have no jobs, no threads and no event loop: a forked child has none of its parent's."""
        self._line: AdmissionQueue[Job] = AdmissionQueue(self._limit, self._threads)
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
        """The keys that `mmhash.keys` gives, in the order of the items.

        The first error is raised once nothing runs any more, and says which item it was. With
        `return_errors=True` it stands in the item's place, and the others have their keys.
        """
        if not isinstance(items, (list, tuple, Iterator)):
            raise InputTypeError(f"keys() takes a list of items, not one {type(items).__name__}")
        outcomes = await self._hash(list(items), _Options(check_algorithm(algorithm), tenant))
        found: list[Digest | Exception] = [
            _of_item(index, outcome) if isinstance(outcome, Exception) else outcome
            for index, outcome in enumerate(outcomes)
        ]
        return found if return_errors else _without_errors(found)

    async def key(
        self, item: Any, *, algorithm: str = "blake3", tenant: bytes | None = None
    ) -> Digest:
        """The key that `mmhash.key` gives."""
        outcomes = await self._hash([item], _Options(check_algorithm(algorithm), tenant))
        return _without_errors(outcomes)[0]

    async def close(self) -> None:
        """Refuse new calls, fail those that wait, and come back when nothing is read any more."""
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            if not self._loop.is_closed():
                raise _another_loop_error()
            # The callers are gone with their loop, but items may still be read.
            self._closed = True
            await asyncio.to_thread(self._pool.shutdown)
            return
        self._closed = True
        for job in self._line.drain():
            self._resolve(job, _closed_error())
        try:
            await _stopped(list(self._line.running), self._line)
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
        """What is under way, and what was done."""
        return Stats(
            len(self._line.running),
            self._line.running_bytes,
            len(self._line),
            self._line.waiting_bytes,
            self._inline,
            self._threaded,
            self._joined,
            self._deferred,
            self._failed,
        )

    async def _hash(self, items: list[Any], options: "_Options") -> Sequence[Outcome]:
        loop = self._enter(options)
        if self._defers and self._is_too_much(items, options):
            self._deferred += len(items)
            return [LazyKey(partial(key, item, **options._asdict())) for item in items]
        begun: list[Outcome | Job] = []
        try:
            async with self._turn:
                for item in items:
                    begun.append(self._begin(item, options))
                    if self._has_worked_long(loop):
                        await asyncio.sleep(0)
            return [
                # Shielded, for others may wait for the same flight.
                await asyncio.shield(one.landed) if isinstance(one, Job) else one
                for one in begun
            ]
        except BaseException as error:
            jobs = [one for one in begun if isinstance(one, Job)]
            for job in jobs:
                self._withdraw(job)
            self._admit()
            if isinstance(error, asyncio.CancelledError):
                await _stopped(jobs, self._line)
            raise

    def _has_worked_long(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this round of the loop has had its slice: the other calls wait for their turn.

        To begin 128 calls takes 2 ms, which one round would do in one go.
        """
        now = perf_counter()
        if self._slice_ends is None:
            self._slice_ends = now + _SLICE
            loop.call_soon(self._begin_slice)  # comes next round, before who sleeps until then
        return now > self._slice_ends

    def _begin_slice(self) -> None:
        self._slice_ends = None

    def _enter(self, options: "_Options") -> asyncio.AbstractEventLoop:
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

    def _is_too_much(self, items: list[Any], options: "_Options") -> bool:
        if not self._line.backlog:
            return False
        nbytes = 0
        for item in items:
            try:
                load = cost_of(item)
            except (KeyboardInterrupt, SystemExit):  # as in _begin
                raise
            except BaseException:  # noqa: BLE001, S112  (hashing it says why)
                continue
            if not self._placement.is_inline(load, options.algorithm):
                nbytes += load.nbytes
        return nbytes > 0 and self._line.backlog + nbytes > self._limit

    def _begin(self, item: Any, options: "_Options") -> "Outcome | Job":
        """A key or an error if it is had at once, else the job that brings one."""
        if self._closed:  # meanwhile, by another task
            return _closed_error()
        try:
            load = cost_of(item)
            if self._placement.is_inline(load, options.algorithm):
                self._inline += 1
                return key(item, algorithm=options.algorithm, tenant=options.tenant)
            return self._submit(item, load, options)
        except (KeyboardInterrupt, SystemExit):  # on the loop's thread they may be the user's
            raise
        except BaseException as error:  # noqa: BLE001  (handed to the caller)
            self._failed += 1
            return _failure(error)

    def _submit(self, item: Any, load: ItemCost, options: "_Options") -> "Job":
        """The flight that brings the item's key: one that is on its way already, or a new one."""
        identity = (identity_of(item), options)
        job = self._jobs.get(identity)
        if job is None:
            place = self._placement.of(load, options.algorithm)
            job = self._jobs[identity] = Job(item, load, place, identity, options)
            self._line.push(job)
            self._admit()
        else:
            self._joined += 1
        job.callers += 1
        return job

    def _admit(self) -> None:
        loop = self._loop
        while loop is not None and (job := self._line.admit()) is not None:
            alone = len(self._line.running) == 1 and not len(self._line)
            threads = self._threads if alone and job.nbytes >= WIDE_FROM else 1
            claim = threading.Lock()
            report = partial(_report, loop, self._end, job)
            try:
                self._pool.submit(_run, job, threads, claim, report)
            except RuntimeError as error:  # no thread can be started, or the interpreter ends
                # The job may be in the queue of the pool's other threads all the same.
                if claim.acquire(blocking=False):
                    self._line.release(job)
                    self._resolve(job, MMHashError(f"no thread hashes the item: {error}"))

    def _end(self, job: "Job", outcome: Outcome | int) -> None:
        self._line.release(job)
        if isinstance(outcome, int) and job.callers and not self._closed:
            job.nbytes = outcome  # it waits again, with its true weight
            self._line.push(job)
        else:
            self._threaded += 1
            self._resolve(job, _closed_error() if isinstance(outcome, int) else outcome)
        self._admit()

    def _resolve(self, job: "Job", outcome: Outcome) -> None:
        del self._jobs[job.identity]
        self._failed += isinstance(outcome, Exception)
        job.landed.set_result(outcome)

    def _withdraw(self, job: "Job") -> None:
        """One caller less; of a flight that nobody wants and that has not begun, all is gone."""
        job.callers -= 1
        if not job.callers and self._line.discard(job):
            del self._jobs[job.identity]


class _Options(NamedTuple):
    algorithm: Algorithm
    tenant: bytes | None


class Job:
    """An item on its way. It holds the item, and so its memory, until nothing reads it."""

    def __init__(
        self, item: Any, load: ItemCost, place: Device, identity: Hashable, options: _Options
    ) -> None:
        self.nbytes = load.nbytes
        self.identity = identity
        self.callers = 0
        self.landed: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._item = item
        self._guessed = load.is_estimate
        self._place = place
        self._options = options

    def run(self, threads: int) -> Outcome | int:
        """In a thread: the key, or why there is none, or the bytes that it has after all."""
        try:
            if self._guessed:
                self._guessed = False
                nbytes = cost_of(self._item, count_frames=True).nbytes
                if nbytes > self.nbytes:
                    return nbytes
            return hash_on(self._place, self._item, *self._options, threads)
        except BaseException as error:  # noqa: BLE001  (handed to the caller)
            return _failure(error)


def _run(
    job: Job, threads: int, claim: threading.Lock, report: Callable[[Outcome | int], None]
) -> None:
    """In a thread: run the job if it is still wanted there, and report how it ended, always."""
    if not claim.acquire(blocking=False):
        return
    outcome: Outcome | int = MMHashError("the thread that hashed the item was ended")
    try:
        outcome = job.run(threads)
    finally:
        report(outcome)


def _report(
    loop: asyncio.AbstractEventLoop,
    end: Callable[[Job, Outcome | int], None],
    job: Job,
    outcome: Outcome | int,
) -> None:
    with suppress(RuntimeError):  # the loop was closed: nobody waits
        loop.call_soon_threadsafe(end, job, outcome)


def _failure(error: BaseException) -> Exception:
    """The error of an item, for its caller.

    An item's KeyboardInterrupt, SystemExit or CancelledError must not end what hashes it, and a
    StopIteration cannot leave a coroutine: they become the cause of a named error. The frames of a
    traceback would hold the item for as long as the error is kept.
    """
    BaseException.with_traceback(error, None)
    if isinstance(error, Exception) and not isinstance(error, (StopIteration, StopAsyncIteration)):
        return error
    named = InputError(f"reading the item raised {type(error).__name__}")
    named.__cause__ = error
    return named


async def _stopped(jobs: list[Job], line: AdmissionQueue[Job]) -> None:
    """Wait until none of the flights is read any more, however often that is cancelled."""
    cancelled = None
    for job in jobs:
        while job in line.running:
            try:
                await asyncio.shield(job.landed)
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled


def _of_item(index: int, error: Exception) -> Exception:
    """The error, in words that name its item."""
    if isinstance(error, MMHashError) and type(error).__module__ == MMHashError.__module__:
        named = type(error)(f"item {index}: {error}")
        named.__cause__ = error.__cause__
        return named
    error.add_note(f"item {index}")
    return error


def _without_errors(outcomes: Sequence[Outcome]) -> list[Digest]:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, Digest)]


def _closed_error() -> MMHashError:
    return MMHashError("this AsyncHasher is closed")


def _another_loop_error() -> MMHashError:
    return MMHashError("this AsyncHasher belongs to another event loop: make one for each")


def _check_natural(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputTypeError(f"{name} is an int, not {type(value).__name__}")
    if value < 1:
        raise InputValueError(f"{name} is at least 1, not {value}")


_all: weakref.WeakSet[AsyncHasher] = weakref.WeakSet()


def _after_fork() -> None:
    for hasher in list(_all):
        hasher._start()


os.register_at_fork(after_in_child=_after_fork)
