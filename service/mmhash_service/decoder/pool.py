"""The pool of decoder processes: gives them jobs, limits their time, replaces those that exit.

Nothing here blocks the event loop or takes a thread, so probes and requests without images never
wait for images.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from mmhash import Digest
from mmhash.cpu import cpu_count
from mmhash.digest import DIGEST_SIZE, Algorithm
from mmhash_service.decoder import costs
from mmhash_service.decoder.child import DecoderEndedError, DecoderProcess
from mmhash_service.decoder.job_queue import JobQueue, QueuedJob
from mmhash_service.decoder.messages import (
    Answer,
    Decoded,
    Deferred,
    Hello,
    ImageJob,
    Refused,
)
from mmhash_service.memo.entries import Pixels
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings
from mmhash_service.telemetry import tracing

logger = logging.getLogger(__name__)

# A process starts in less than a second on an idle core, but a loaded machine takes longer.
_START_TIMEOUT_S = 30.0
_RETRY_S = 1.0

# How long the readiness probe waits for the first start. Its client waits longer.
_READY_TIMEOUT_S = 4.0

# Idle decoders take memory too.
_MAX_DEFAULT = 8

_CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS}
)


class ImageRefusedError(Exception):
    """Why an image was refused, for the log."""


class DecoderPool:
    """The decoder processes of the setting `decoders`, plus one for small images only."""

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
        """Start the processes. Each runs jobs as soon as it is ready."""
        self._loop = asyncio.get_running_loop()
        self._queue = JobQueue()
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
        """Wait for all processes to start. Return False after a time-out."""
        self._open_here()
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                for started in self._started:
                    await started.wait()
        except TimeoutError:
            return False
        return True

    async def decode(self, body: memoryview, algorithm: Algorithm) -> Pixels:
        """Decode and hash an image. A crash affects no other image.

        The caller decides how long it may wait for a process.
        """
        self._open_here()
        with tracing.span("decode"):
            answer = await self._run_job(body, algorithm, costs.cpu_seconds(len(body)))
            if isinstance(answer, Deferred):
                # The image waits for a slot without a maximum cost.
                cost_s = max(answer.cost_s, 2 * costs.SHORT_S)
                answer = await self._run_job(body, algorithm, cost_s)
        return pixels_of(answer, algorithm)

    async def _run_job(self, body: memoryview, algorithm: Algorithm, cost_s: float) -> Answer:
        settings, is_long = self._settings, cost_s > costs.SHORT_S
        job = ImageJob(
            algorithm,
            len(body),
            settings.max_pixels,
            settings.timeout_s,
            defer_above_s=float("inf") if is_long else costs.SHORT_S,
        )
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        number = next(self._numbers)
        await self._queue.put(QueuedJob(cost_s if is_long else 0.0, number, job, body, answer))
        return await answer

    def _open_here(self) -> None:
        """Start the processes unless this event loop has: without a server, nobody calls `open`."""
        if self._loop is not asyncio.get_running_loop():
            self.open()

    async def _run(self, max_cost_s: float, started: asyncio.Event) -> None:
        """Keep one process running: give it one job after another, and replace it if it exits."""
        while True:
            try:
                process = DecoderProcess(self._settings.max_pixels, self._max_nbytes)
            except OSError as error:
                started.clear()
                logger.error("cannot start a decoder process: %s", error)  # noqa: TRY400  (nothing to trace)
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                async with asyncio.timeout(_START_TIMEOUT_S):
                    self._log_confinement(await process.receive())
                started.set()
                while await self._serve(process, await self._queue.get(max_cost_s)):
                    pass
            except (TimeoutError, DecoderEndedError, OSError):
                started.clear()
                logger.error("a decoder process exited or hung at its start")  # noqa: TRY400  (nothing to trace)
                await asyncio.sleep(_RETRY_S)
            finally:
                await process.end()

    def _log_confinement(self, hello: Answer) -> None:
        """Check the first message of a process, and log once if it has no system call filter."""
        if not isinstance(hello, Hello):
            raise DecoderEndedError
        if hello.unconfined and not self._is_logged:
            self._is_logged = True
            logger.warning("decoders run without a system call filter: %s", hello.unconfined)

    @asynccontextmanager
    async def _time_limit(self, answer: asyncio.Future[Answer]) -> AsyncIterator[None]:
        """Limit a job's time to the time-out, or twice the time-out while a request waits for it.

        Requests share a job, and one may begin to wait just before the first gives up.
        """
        loop, timeout_s = asyncio.get_running_loop(), self._settings.timeout_s
        start = loop.time()
        async with asyncio.timeout_at(start + 2 * timeout_s) as limit:
            is_over = False

            def give_up(_: asyncio.Future[Answer]) -> None:
                if not is_over:  # the loop may call it after the job's end
                    limit.reschedule(max(loop.time(), start + timeout_s))

            answer.add_done_callback(give_up)
            try:
                yield
            finally:
                is_over = True
                answer.remove_done_callback(give_up)

    async def _serve(self, process: DecoderProcess, queued: QueuedJob) -> bool:
        """Run one job. Return False if the process must be replaced."""
        if queued.answer.done():  # no request waits for it any more
            return True
        if not process.runs:
            logger.warning("decoder %d exited while it was idle", process.pid)
            await self._queue.put(queued)
            return False
        problem = "decoder-failed"
        try:
            async with self._time_limit(queued.answer):
                answer = await process.run(queued.job, queued.body)
        except TimeoutError:
            problem = "too-slow"
        except (DecoderEndedError, OSError):
            code = await process.end()
            logger.warning("decoder %d exited with %d", process.pid, code)
            if code == -signal.SIGPROF:
                problem = "costly-media"
            elif -code in _CRASHES:
                problem = "damaged-media"
            elif not queued.is_retried:  # killed from outside, so the image may be harmless
                queued.is_retried = True
                await self._queue.put(queued)
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
    """Return the pixels of a decoded image, or raise the problem that another answer stands for."""
    match answer:
        case Decoded(digest=digest) as decoded if len(digest) == DIGEST_SIZE[algorithm]:
            content = Digest(algorithm, digest)
            return Pixels(
                decoded.frames, decoded.nbytes, content, decoded.extra, decoded.orientation
            )
        case Refused() as refused:
            raise _problem_of(refused)
        case _:
            raise Problem("decoder-failed")


def _problem_of(refused: Refused) -> Problem:
    problem = Problem(refused.problem, reason=refused.shown)
    problem.__cause__ = ImageRefusedError(refused.reason)
    return problem


def decoder_count(settings: Settings) -> int:
    """Return how many decoders of a server process decode images of any size."""
    return settings.decoders or max(1, min(cpu_count() // settings.processes, _MAX_DEFAULT))
