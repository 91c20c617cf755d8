"""Reading of a request body, piece by piece, with limits on its length and on its stalls."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from anyio import to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from mmhash_service.api.problems import Problem
from mmhash_service.bodies.parsing import parse_natural
from mmhash_service.runtime import metrics

# Longer pieces are processed in a thread. uvicorn's are shorter, at most 256 KiB: 40 µs of
# hashing, less than a round trip to a thread.
INLINE_MAX_BYTES = 1 << 20

# A body has stalled if it makes less progress than this in `stall_timeout_s`.
MIN_PROGRESS = 1024

# The key of the body's length in the ASGI scope, for the access log.
BODY_BYTES = "mmhash.body_bytes"


def declared_length(request: Request) -> int | None:
    """Return the Content-Length, or None if it is missing or invalid."""
    return parse_natural(request.headers.get("content-length", ""))


async def read_body(
    request: Request,
    limit: int,
    take: Callable[[bytes], Awaitable[None] | None],
    stall_timeout_s: float,
) -> int:
    """Pass each piece of the body to `take` as it arrives, and return the total length.

    If `take` returns an awaitable, it is awaited before the next piece is read.
    """
    # All bodies pass here: a gateway that decompresses one would see other bytes than we hash.
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem("unsupported-encoding")
    if (declared_length(request) or 0) > limit:
        raise Problem("body-too-large")
    receive = request.receive
    length = 0
    timer = StallTimer(stall_timeout_s)
    try:
        with timer:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientDisconnect
                if piece := message["body"]:
                    timer.length = length = length + len(piece)
                    if length > limit:
                        raise Problem("body-too-large")
                    if len(piece) > INLINE_MAX_BYTES:
                        pending = await to_thread.run_sync(take, piece)
                    else:
                        pending = take(piece)
                    if pending is not None:
                        await pending
                if not message.get("more_body", False):
                    return length
    finally:
        request.scope[BODY_BYTES] = length
        metrics.BODY_BYTES.inc(length)


class StallTimer:
    """Cancel the task if its body stalls, with one timer for each body, not one for each piece."""

    def __init__(self, seconds: float) -> None:
        self.length = 0
        self._seconds = seconds
        self._last_length = 0
        self._stalled = False

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._seconds, self.on_timer)
        return self

    def on_timer(self) -> None:
        """Cancel the task if its body has made no progress since the last run of the timer."""
        if self.length - self._last_length < MIN_PROGRESS and self._task is not None:
            self._stalled = True
            self._task.cancel()
            return
        self._last_length = self.length
        self._timer = self._loop.call_later(self._seconds, self.on_timer)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._stalled and self._task is not None:
            self._task.uncancel()
            if kind is asyncio.CancelledError:
                raise Problem("stalled-body") from None
