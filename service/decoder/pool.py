"""Decoder processes, and the jobs that wait for one.

Nothing here blocks the event loop or takes a thread: a probe or a request without an image does not
wait for one with an image.
"""

import asyncio
import heapq
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from bisect import insort
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count
from typing import TypeVar

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
    Decoded,
    Deferred,
    Hello,
    Job,
    Refused,
)
from mmhash_service.memo.entries import Pixels
from mmhash_service.settings import Settings

T = TypeVar("T")

logger = logging.getLogger(__name__)

# Python and the libraries must be found; the secrets among the settings must not.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "TMPDIR")

# A process takes 0.2 s to start on an idle core.
_START_TIMEOUT_S = 30.0
_RETRY_S = 1.0

# A probe waits for the first start, less than a prober does.
_READY_TIMEOUT_S = 5.0

# Copied at once: 0.3 ms of the event loop.
_PIECE = 1 << 20

# Pages of a decoder's file that are kept for the next image: new ones took 0.1 ms of 0.2.
_KEPT = 4 << 20

# A decoder of a large machine takes 35 MB when it does nothing.
_MAX_DEFAULT = 8

_CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS}
)

_ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class DecoderEndedError(Exception):
    """The process ended, or answered something that is no answer."""


class _IdleEndError(Exception):
    """The process ended while it had no job."""


class ImageRefusedError(Exception):
    """The decoder's reason, for the log."""


@dataclass(order=True)
class _Waiting:
    """A job in the queue: the cheapest first, and of equal ones the oldest."""

    cost_s: float
    number: int
    job: Job = field(compare=False)
    body: memoryview = field(compare=False)
    deadline: float = field(compare=False)
    answer: asyncio.Future[Decoded | Deferred | Refused] = field(compare=False)
    is_retried: bool = field(default=False, compare=False)


class _Queue:
    """Jobs by their cost, and the slots that wait for one."""

    def __init__(self) -> None:
        self._jobs: list[_Waiting] = []
        # The slot that takes the fewest jobs is first.
        self._slots: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def put(self, job: _Waiting) -> None:
        heapq.heappush(self._jobs, job)
        self._wake()

    async def get(self, max_cost_s: float) -> _Waiting:
        """The next job that costs at most so much."""
        while not (self._jobs and self._jobs[0].cost_s <= max_cost_s):
            slot = (max_cost_s, next(self._numbers), asyncio.get_running_loop().create_future())
            insort(self._slots, slot)
            try:
                await slot[2]
            except asyncio.CancelledError:
                if slot in self._slots:
                    self._slots.remove(slot)
                self._wake()  # it may have been woken for a job that another must take now
                raise
        job = heapq.heappop(self._jobs)
        self._wake()
        return job

    def _wake(self) -> None:
        """Wake one slot for the cheapest job; it wakes the next."""
        for slot in self._slots:
            if self._jobs and self._jobs[0].cost_s <= slot[0]:
                self._slots.remove(slot)
                slot[2].set_result(None)
                return


class DecoderPool:
    """As many decoder processes as the settings say, and one more for small images only."""

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
        """Start the processes; they are used as soon as they are ready."""
        self._loop = asyncio.get_running_loop()
        self._queue = _Queue()
        self._started = [asyncio.Event() for _ in range(self.size)]
        limits = [costs.SHORT_S, *[float("inf")] * (self.size - 1)]
        self._slots = [
            asyncio.create_task(self._run(limit, started))
            for limit, started in zip(limits, self._started, strict=True)
        ]

    async def close(self) -> None:
        """End the processes, and what they work on."""
        for slot in self._slots:
            slot.cancel()
        await asyncio.gather(*self._slots, return_exceptions=True)
        self._slots = []

    async def is_ready(self) -> bool:
        """Wait until all processes have started, and say if they have."""
        self._open_here()
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                for started in self._started:
                    await started.wait()
        except TimeoutError:
            return False
        return True

    async def decode(self, body: memoryview, algorithm: Algorithm) -> Pixels:
        """Decode and hash an image; a problem ends only this job."""
        self._open_here()
        deadline = asyncio.get_running_loop().time() + self._settings.work_timeout_s
        cost_s = costs.cpu_seconds(len(body))
        try:
            async with asyncio.timeout_at(deadline):
                answer = await self._ask(body, algorithm, cost_s, deadline)
                if isinstance(answer, Deferred):
                    # An image that may take long waits for a slot that takes long jobs.
                    cost_s = max(answer.cost_s, 2 * costs.SHORT_S)
                    answer = await self._ask(body, algorithm, cost_s, deadline)
        except TimeoutError:
            raise Problem("too-slow") from None
        return pixels_of(answer, algorithm)

    async def _ask(
        self, body: memoryview, algorithm: Algorithm, cost_s: float, deadline: float
    ) -> Decoded | Deferred | Refused:
        is_long = cost_s > costs.SHORT_S
        job = Job(
            algorithm,
            len(body),
            self._settings.max_pixels,
            self._settings.work_timeout_s,
            float("inf") if is_long else costs.SHORT_S,
        )
        answer: asyncio.Future[Decoded | Deferred | Refused]
        answer = asyncio.get_running_loop().create_future()
        number = next(self._numbers)
        self._queue.put(_Waiting(cost_s if is_long else 0.0, number, job, body, deadline, answer))
        return await answer

    def _open_here(self) -> None:
        """Start the processes for an application that was not started by a server."""
        if self._loop is not asyncio.get_running_loop():
            self.open()

    async def _run(self, max_cost_s: float, started: asyncio.Event) -> None:
        """Keep one process, and give it one job after another."""
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
                logger.warning("decoder %d ended without a job", process.pid)
            except (TimeoutError, DecoderEndedError, OSError):
                started.clear()
                logger.error("a decoder process did not start")  # noqa: TRY400  (nothing to trace)
                await asyncio.sleep(_RETRY_S)
            finally:
                await process.end()

    def _log_confinement(self, hello: Answer) -> None:
        """Check a process's first message; log once if it could not confine itself."""
        if not isinstance(hello, Hello):
            raise DecoderEndedError
        if hello.unconfined and not self._is_logged:
            self._is_logged = True
            logger.warning("decoders run without a filter of system calls: %s", hello.unconfined)

    async def _next(self, process: "DecoderProcess", max_cost_s: float) -> _Waiting:
        return await process.watch(asyncio.create_task(self._queue.get(max_cost_s)))

    async def _serve(self, process: "DecoderProcess", waiting: _Waiting) -> bool:
        """Have the process do one job; False if it must be replaced."""
        if waiting.answer.done():  # its request has gone
            return True
        problem = "decoder-failed"
        try:
            async with asyncio.timeout_at(waiting.deadline):
                answer = await process.ask(waiting.job, waiting.body)
        except TimeoutError:
            problem = "too-slow"
        except (DecoderEndedError, OSError):
            code = await process.end()
            logger.warning("decoder %d ended with %d", process.pid, code)
            if code == -signal.SIGPROF:
                problem = "costly-image"
            elif -code in _CRASHES:
                problem = "damaged-image"
            elif not waiting.is_retried:  # killed from outside: not by the image's fault
                waiting.is_retried = True
                self._queue.put(waiting)
                return False
        else:
            if not isinstance(answer, Hello):
                if not waiting.answer.done():
                    waiting.answer.set_result(answer)
                return True
        if not waiting.answer.done():
            waiting.answer.set_exception(Problem(problem))
        return False


def pixels_of(answer: Answer, algorithm: Algorithm) -> Pixels:
    """The pixels that a decoder answered; all other answers are problems."""
    match answer:
        case Decoded(frames, nbytes, digest, extra) if len(digest) == DIGEST_SIZE[algorithm]:
            return Pixels(frames, nbytes, Digest(algorithm, digest), extra)
        case Refused(problem, reason):
            raise Problem(problem) from ImageRefusedError(reason)
        case _:
            raise Problem("decoder-failed")


def decoder_count(settings: Settings) -> int:
    """How many processes of one worker decode images of any size."""
    return settings.decoders or max(1, min(cpu_count() // settings.workers, _MAX_DEFAULT))


class DecoderProcess:
    """One process, and the connection to it."""

    def __init__(self, max_pixels: int, max_nbytes: int) -> None:
        self._connection, theirs = socket.socketpair()
        self._connection.setblocking(False)
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        with theirs:
            arguments = (theirs.fileno(), os.getpid(), max_pixels, max_nbytes)
            self._process = subprocess.Popen(  # noqa: S603  (nothing in it is a client's)
                [
                    *(sys.executable, "-P", "-m", "mmhash_service.decoder.process"),
                    *map(str, arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # numpy would start a thread for each core.
                env=environment | {"OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                # Ctrl-C is for the service, which still has requests to answer.
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._files = ExitStack()
        self._file = self._files.enter_context(_memory_file())

    async def ask(self, job: Job, body: memoryview) -> Answer:
        """Send the job with its file, and return the answer."""
        for at in range(0, len(body), _PIECE):
            os.pwrite(self._file, body[at : at + _PIECE], at)
            if at:
                await asyncio.sleep(0)
        socket.send_fds(self._connection, [msgspec.msgpack.encode(job)], [self._file])
        answer = await self.receive()
        if len(body) > _KEPT:
            os.ftruncate(self._file, _KEPT)
        return answer

    async def receive(self) -> Answer:
        """The next message of the process."""
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
        """Wait for the task; cancel it if the process ends, which owes nothing meanwhile."""
        loop = asyncio.get_running_loop()
        has_ended = False

        def on_end() -> None:
            nonlocal has_ended
            has_ended = True
            loop.remove_reader(self._connection)
            task.cancel()

        loop.add_reader(self._connection, on_end)
        try:
            return await task
        except asyncio.CancelledError:
            if has_ended:
                raise _IdleEndError from None
            raise
        finally:
            loop.remove_reader(self._connection)

    async def end(self) -> int:
        """Kill the process if it still runs, and return its exit code."""
        self._connection.close()
        self._files.close()
        self._process.kill()
        while (code := self._process.poll()) is None:  # noqa: ASYNC110  (nothing tells of the end)
            await asyncio.sleep(0.002)
        return code


@contextmanager
def _memory_file() -> Iterator[int]:
    """A file in memory, without a name; where there is none, one on the disk."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("mmhash-image")
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryFile() as file:
            yield file.fileno()
