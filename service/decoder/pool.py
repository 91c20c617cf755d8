"""The pool of decoder processes, and the queue of its jobs.

Nothing here blocks the event loop or uses a thread, so that probes and requests without images do
not wait for images.
"""

import asyncio
import errno
import heapq
import logging
import mmap
import os
import signal
import socket
import tempfile
from bisect import insort
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count
from typing import Literal, TypeVar

import msgspec

from mmhash import Digest
from mmhash.cpu import cpu_count
from mmhash.digest import DIGEST_SIZE, Algorithm
from mmhash_service.api.problems import Problem
from mmhash_service.decoder import costs
from mmhash_service.decoder.messages import (
    LENGTH_SIZE,
    MAX_ANSWER,
    Answer,
    AudioSelection,
    Decoded,
    Deferred,
    Hello,
    Job,
    MediaJob,
    Refused,
    VideoSelection,
)
from mmhash_service.memo.entries import Pixels
from mmhash_service.runtime import tracing
from mmhash_service.runtime.child_process import ChildProcess
from mmhash_service.settings import Settings

T = TypeVar("T")

logger = logging.getLogger(__name__)

# The variables that Python and the libraries need, without the secrets among the settings.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "TMPDIR")

# A process takes 0.2 s to start on an idle core.
_START_TIMEOUT_S = 30.0
_RETRY_S = 1.0

# The readiness probe waits this long for the first start, less than its client does.
_READY_TIMEOUT_S = 5.0

# Bytes copied before the event loop may run: 0.3 ms.
_PIECE = 1 << 20

# Pages of a decoder's file that are reused for the next image: new ones took 0.1 ms of 0.2.
_KEPT = 4 << 20

# An idle decoder takes 35 MB.
_MAX_DEFAULT = 8

_CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS}
)

_ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class DecoderEndedError(Exception):
    """The process exited, or sent an invalid answer."""


class _IdleEndError(Exception):
    """The process exited while it had no job."""


class ImageRefusedError(Exception):
    """The reason of a refusal, for the log."""


@dataclass(order=True)
class _QueuedJob:
    """A job in the queue, ordered by its cost, then by its age."""

    cost_s: float
    number: int
    job: Job | MediaJob = field(compare=False)
    body: memoryview = field(compare=False)
    deadline: float = field(compare=False)
    answer: asyncio.Future[Answer] = field(compare=False)
    is_retried: bool = field(default=False, compare=False)


class _Queue:
    """A priority queue of jobs, for slots that each have a maximum cost."""

    def __init__(self) -> None:
        self._jobs: list[_QueuedJob] = []
        # The waiting slots; the one with the lowest maximum cost is first.
        self._slots: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def put(self, job: _QueuedJob) -> None:
        heapq.heappush(self._jobs, job)
        self._wake()

    async def get(self, max_cost_s: float) -> _QueuedJob:
        """Wait for the cheapest job, if it costs at most `max_cost_s`."""
        while not (self._jobs and self._jobs[0].cost_s <= max_cost_s):
            slot = (max_cost_s, next(self._numbers), asyncio.get_running_loop().create_future())
            insort(self._slots, slot)
            try:
                await slot[2]
            except asyncio.CancelledError:
                if slot in self._slots:
                    self._slots.remove(slot)
                self._wake()  # it may have been woken for a job that another slot can run
                raise
        job = heapq.heappop(self._jobs)
        self._wake()
        return job

    def _wake(self) -> None:
        """Wake one slot for the cheapest job; that slot wakes the next."""
        for slot in self._slots:
            if self._jobs and self._jobs[0].cost_s <= slot[0]:
                self._slots.remove(slot)
                slot[2].set_result(None)
                return


class DecoderPool:
    """The decoder processes of the setting `decoders`, and one more for small images only."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._max_nbytes = min(settings.max_body_bytes, settings.max_held_bytes)
        self._slots: list[asyncio.Task[None]] = []
        self._started: list[asyncio.Event] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._numbers = count()
        self._is_logged = False

    @property
    def size(self) -> int:
        """The number of processes."""
        return decoder_count(self._settings) + 1

    def open(self) -> None:
        """Start the processes; they run jobs as soon as they are ready."""
        self._loop = asyncio.get_running_loop()
        self._queue = _Queue()
        self._started = [asyncio.Event() for _ in range(self.size)]
        limits = [costs.SHORT_S, *[float("inf")] * (self.size - 1)]
        self._slots = [
            asyncio.create_task(self._run(limit, started))
            for limit, started in zip(limits, self._started, strict=True)
        ]

    async def close(self) -> None:
        """Kill the processes and their jobs."""
        for slot in self._slots:
            slot.cancel()
        await asyncio.gather(*self._slots, return_exceptions=True)
        self._slots = []

    async def is_ready(self) -> bool:
        """Wait until all processes have started; return False after a time-out."""
        self._open_here()
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                for started in self._started:
                    await started.wait()
        except TimeoutError:
            return False
        return True

    async def decode(self, body: memoryview, algorithm: Algorithm) -> Pixels:
        """Decode and hash an image; a failure affects only this job."""
        settings = self._settings
        job = Job(algorithm, len(body), settings.max_pixels, settings.work_timeout_s, 0)
        answer = await self._run_job(body, job, costs.cpu_seconds(len(body)))
        return pixels_of(answer, algorithm)

    async def read_media(
        self,
        body: memoryview,
        modality: Literal["video", "audio"],
        algorithm: Algorithm = "blake3",
        selection: VideoSelection | AudioSelection | None = None,
        pixels: int = 0,
    ) -> Answer:
        """Read the index of a video or audio clip, or hash the frames or samples of a selection.

        `pixels` is the number of pixels to decode, which sets the limit on time.
        """
        settings = self._settings
        limits = settings.max_pixels, settings.work_timeout_s, 0.0
        job = MediaJob(algorithm, modality, len(body), *limits, selection, pixels)
        answer = await self._run_job(body, job, costs.cpu_seconds(len(body), 0, pixels))
        if isinstance(answer, Refused):
            raise Problem(answer.problem) from ImageRefusedError(answer.reason)
        return answer

    async def _run_job(self, body: memoryview, job: Job | MediaJob, cost_s: float) -> Answer:
        self._open_here()
        deadline = asyncio.get_running_loop().time() + self._settings.work_timeout_s
        try:
            with tracing.span("decode"):
                return await self._run_until(deadline, body, job, cost_s)
        except TimeoutError:
            raise Problem("too-slow") from None

    async def _run_until(
        self, deadline: float, body: memoryview, job: Job | MediaJob, cost_s: float
    ) -> Answer:
        async with asyncio.timeout_at(deadline):
            answer = await self._submit(body, job, cost_s, deadline)
            if isinstance(answer, Deferred):
                # An image that may take long waits for a slot without a maximum cost.
                cost_s = max(answer.cost_s, 2 * costs.SHORT_S)
                answer = await self._submit(body, job, cost_s, deadline)
            return answer

    async def _submit(
        self, body: memoryview, job: Job | MediaJob, cost_s: float, deadline: float
    ) -> Answer:
        is_long = cost_s > costs.SHORT_S
        job = msgspec.structs.replace(job, defer_above_s=float("inf") if is_long else costs.SHORT_S)
        answer: asyncio.Future[Answer]
        answer = asyncio.get_running_loop().create_future()
        number = next(self._numbers)
        self._queue.put(_QueuedJob(cost_s if is_long else 0.0, number, job, body, deadline, answer))
        return await answer

    def _open_here(self) -> None:
        """Start the processes if this event loop has not: without a server there is no lifespan."""
        if self._loop is not asyncio.get_running_loop():
            self.open()

    async def _run(self, max_cost_s: float, started: asyncio.Event) -> None:
        """Run one process and pass it one job after another; replace it when it exits."""
        while True:
            try:
                process = DecoderProcess(self._settings.max_pixels, self._max_nbytes)
            except OSError as error:
                started.clear()
                logger.error("a decoder process did not start: %s", error)  # noqa: TRY400  (nothing to trace)
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                async with asyncio.timeout(_START_TIMEOUT_S):
                    self._log_confinement(await process.receive())
                started.set()
                while await self._serve(process, await self._next(process, max_cost_s)):
                    pass
            except _IdleEndError:
                logger.warning("decoder %d exited without a job", process.pid)
            except (TimeoutError, DecoderEndedError, OSError):
                started.clear()
                logger.error("a decoder process did not start")  # noqa: TRY400  (nothing to trace)
                await asyncio.sleep(_RETRY_S)
            finally:
                await process.end()

    def _log_confinement(self, hello: Answer) -> None:
        """Check the first message of a process; log once if it has no system call filter."""
        if not isinstance(hello, Hello):
            raise DecoderEndedError
        if hello.unconfined and not self._is_logged:
            self._is_logged = True
            logger.warning("decoders run without a system call filter: %s", hello.unconfined)

    async def _next(self, process: "DecoderProcess", max_cost_s: float) -> _QueuedJob:
        return await process.watch(asyncio.create_task(self._queue.get(max_cost_s)))

    async def _serve(self, process: "DecoderProcess", queued: _QueuedJob) -> bool:
        """Run one job; return False if the process must be replaced."""
        if queued.answer.done():  # its client has disconnected
            return True
        problem = "decoder-failed"
        try:
            async with asyncio.timeout_at(queued.deadline):
                answer = await process.run(queued.job, queued.body)
        except TimeoutError:
            problem = "too-slow"
        except (DecoderEndedError, OSError):
            code = await process.end()
            logger.warning("decoder %d exited with %d", process.pid, code)
            noun = "media" if isinstance(queued.job, MediaJob) else "image"
            if code == -signal.SIGPROF:
                problem = f"costly-{noun}"
            elif -code in _CRASHES:
                problem = f"damaged-{noun}"
            elif not queued.is_retried:  # killed from outside: not caused by the image
                queued.is_retried = True
                self._queue.put(queued)
                return False
        else:
            if not isinstance(answer, Hello):
                if not queued.answer.done():
                    queued.answer.set_result(answer)
                return True
        if not queued.answer.done():
            queued.answer.set_exception(Problem(problem))
        return False


def pixels_of(answer: Answer, algorithm: Algorithm) -> Pixels:
    """Return the pixels of an answer; all other answers are problems."""
    match answer:
        case Decoded(digest=digest) as decoded if len(digest) == DIGEST_SIZE[algorithm]:
            content = Digest(algorithm, digest)
            return Pixels(
                decoded.frames, decoded.nbytes, content, decoded.extra, decoded.orientation
            )
        case Refused(problem, reason):
            raise Problem(problem) from ImageRefusedError(reason)
        case _:
            raise Problem("decoder-failed")


def decoder_count(settings: Settings) -> int:
    """Return the number of processes of one worker that decode images of any size."""
    return settings.decoders or max(1, min(cpu_count() // settings.workers, _MAX_DEFAULT))


class DecoderProcess:
    """One process, and the file in which it receives images."""

    def __init__(self, max_pixels: int, max_nbytes: int) -> None:
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        # With its default, numpy starts a thread for each core.
        environment["OPENBLAS_NUM_THREADS"] = "1"
        with ExitStack() as files:
            self._file = files.enter_context(_memory_file())
            self._kept = _map_file(self._file)
            files.callback(self._kept.close)
            self._process = ChildProcess(
                "mmhash_service.decoder.process",
                *(os.getpid(), max_pixels, max_nbytes),
                environment=environment,
            )
            self._files = files.pop_all()
        self.pid = self._process.pid
        self._connection = self._process.connection
        self._connection.setblocking(False)

    async def run(self, job: Job | MediaJob, body: memoryview) -> Answer:
        """Send the job and its image, and return the answer."""
        await self._share(body)
        socket.send_fds(self._connection, [msgspec.msgpack.encode(job)], [self._file])
        answer = await self.receive()
        if len(body) > _KEPT:
            os.ftruncate(self._file, _KEPT)
        return answer

    async def _share(self, body: memoryview) -> None:
        """Copy an image to the file, and let other tasks run between its pieces."""
        for start in range(0, len(body), _PIECE):
            piece = body[start : start + _PIECE]
            end = start + len(piece)
            if end <= len(self._kept):
                self._kept[start:end] = piece
            elif os.pwrite(self._file, piece, start) != len(piece):
                # What is missing would be an earlier image's.
                raise OSError(errno.ENOSPC, "an image cannot be written to memory")
            if start:
                await asyncio.sleep(0)

    async def receive(self) -> Answer:
        """Return the next message of the process."""
        length = int.from_bytes(await self._read(LENGTH_SIZE), "little")
        if length > MAX_ANSWER:
            raise DecoderEndedError
        try:
            return _ANSWERS.decode(await self._read(length))
        except msgspec.DecodeError:
            raise DecoderEndedError from None

    async def _read(self, nbytes: int) -> bytes:
        loop = asyncio.get_running_loop()
        pieces = BytesIO()
        while missing := nbytes - pieces.tell():
            piece = await loop.sock_recv(self._connection, min(missing, _PIECE))
            if not piece:
                raise DecoderEndedError
            pieces.write(piece)
        return pieces.getvalue()

    async def watch(self, task: asyncio.Task[T]) -> T:
        """Wait for the task; cancel it if the process exits, which has no job meanwhile."""
        loop = asyncio.get_running_loop()
        has_exited = False

        def on_readable() -> None:
            nonlocal has_exited
            has_exited = True
            loop.remove_reader(self._connection)
            task.cancel()

        loop.add_reader(self._connection, on_readable)
        try:
            return await task
        except asyncio.CancelledError:
            if has_exited:
                raise _IdleEndError from None
            raise
        finally:
            loop.remove_reader(self._connection)

    async def end(self) -> int:
        """Kill the process, if it still runs, and return its exit code."""
        self._process.kill()
        self._files.close()
        while (code := self._process.poll()) is None:  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0.002)
        return code


def _map_file(descriptor: int) -> mmap.mmap:
    """Map the beginning of a file: 4 MiB, or less under a limit on file sizes."""
    size = _KEPT
    while True:
        try:
            os.ftruncate(descriptor, size)
            return mmap.mmap(descriptor, size)
        except OSError:
            if size == mmap.PAGESIZE:
                raise
            size //= 2


@contextmanager
def _memory_file() -> Iterator[int]:
    """Open an anonymous file in memory, or on disk if the system has no memfd_create."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("mmhash-image")
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryFile() as file:
            yield file.fileno()
