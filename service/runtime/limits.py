"""What a process takes on at once, and how a body comes: bounded in bytes, and not for ever."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Self

from anyio import to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from mmhash.cpu import cpu_count
from mmhash_service.api.problems import Problem
from mmhash_service.bodies.parsing import parse_natural
from mmhash_service.runtime import metrics
from mmhash_service.settings import Settings

# Longer pieces are taken in a thread. Those of uvicorn are shorter, at most 256 KiB: 40 µs of
# hashing, less than it takes to hand them to a thread and back.
INLINE_MAX_BYTES = 1 << 20

# What a streamed body holds: the piece that is hashed and the one that waits.
STREAM_BYTES = 256 << 10

# A body that comes slower than this in the time of the setting stall_timeout_s has stalled.
MIN_PROGRESS = 1024


# More calls than these keep all cores busy by themselves.
SPARE_REQUESTS = 4 * cpu_count()

# Where in a call's scope the length of its body stands, for the log.
BODY_BYTES = "mmhash.body_bytes"


class Admission:
    """The room that one call takes."""

    def __init__(self, limits: "Limits") -> None:
        self._limits = limits
        self.held = 0

    def reserve(self) -> AbstractContextManager["Admission"]:
        """Room for a part of the call, given back when that ends."""
        return self._limits.reserve()

    def hold(self, nbytes: int) -> None:
        """Take room for so many bytes more, if there is any."""
        if self._limits.held + nbytes > self._limits.max_held:
            raise Problem("busy")
        self._limits.held += nbytes
        self.held += nbytes
        metrics.HELD_BYTES.inc(nbytes)


class Limits:
    """How much a process has taken on: calls, and bytes that it holds."""

    def __init__(self, settings: Settings) -> None:
        self.max_held = settings.max_held_bytes
        self.max_calls = settings.max_calls
        self.held = 0
        self.calls = 0
        # After SIGTERM: what has been admitted is answered, nothing more is.
        self.draining = False

    def has_spare_capacity(self, nbytes: int) -> bool:
        """Whether there are cores and room to spare for calls that hold so much."""
        return self.calls <= SPARE_REQUESTS and self.held + nbytes <= self.max_held

    @contextmanager
    def admit(self) -> Iterator[Admission]:
        """Make room for a call, or refuse it before its body is read."""
        if self.draining:
            raise Problem("draining")
        if self.calls >= self.max_calls:
            raise Problem("busy")
        self.calls += 1
        metrics.CALLS.inc()
        try:
            with self.reserve() as admission:
                yield admission
        finally:
            self.calls -= 1
            metrics.CALLS.dec()

    @contextmanager
    def reserve(self) -> Iterator[Admission]:
        """Room for what is streamed, and for what is held beside it, until it ends."""
        admission = Admission(self)
        try:
            admission.hold(STREAM_BYTES)
            yield admission
        finally:
            self.held -= admission.held
            metrics.HELD_BYTES.dec(admission.held)


def declared_length(request: Request) -> int | None:
    """The length that the client says the body has, if it says any."""
    return parse_natural(request.headers.get("content-length", ""))


async def read_body(
    request: Request,
    limit: int,
    take: Callable[[bytes], Awaitable[None] | None],
    stall_timeout_s: float,
) -> int:
    """Hand each piece of the body to `take`, as it comes, and return the length of all.

    What `take` gives back, if anything, is waited for before the next piece.
    """
    # Every body comes through here: compressed, it would be another one to a gateway that unpacks.
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem("unsupported-encoding")
    if (declared_length(request) or 0) > limit:
        raise Problem("body-too-large")
    receive = request.receive
    length = 0
    watch = StallTimer(stall_timeout_s)
    try:
        with watch:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientDisconnect
                if piece := message["body"]:
                    watch.length = length = length + len(piece)
                    if length > limit:
                        raise Problem("body-too-large")
                    if len(piece) > INLINE_MAX_BYTES:
                        waiting = await to_thread.run_sync(take, piece)
                    else:
                        waiting = take(piece)
                    if waiting is not None:
                        await waiting
                if not message.get("more_body", False):
                    return length
    finally:
        request.scope[BODY_BYTES] = length
        metrics.BODY_BYTES.inc(length)


class StallTimer:
    """Ends the task whose body has stalled; it costs a timer a body, not one a piece."""

    def __init__(self, seconds: float) -> None:
        self.length = 0
        self._seconds = seconds
        self._seen = 0
        self._stalled = False

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._seconds, self.on_timer)
        return self

    def on_timer(self) -> None:
        """Cancel the task if its body has made no progress since the last call."""
        if self.length - self._seen < MIN_PROGRESS and self._task is not None:
            self._stalled = True
            self._task.cancel()
            return
        self._seen = self.length
        self._timer = self._loop.call_later(self._seconds, self.on_timer)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._stalled and self._task is not None:
            self._task.uncancel()
            if kind is asyncio.CancelledError:
                raise Problem("stalled-body") from None
