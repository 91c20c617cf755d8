"""Reads a request body piece by piece, with limits on its length and on stalls."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Self

from fastapi import Request
from starlette.requests import ClientDisconnect

from mmhash.engines.caller_fields import COMPRESSION_HEADERS
from mmhash_service.limits.text import has_many_values, header_of, parse_natural
from mmhash_service.problems.problem import Problem, shown
from mmhash_service.telemetry import metrics, tracing

_COMPRESSION_HEADERS = frozenset(name.encode() for name in COMPRESSION_HEADERS)

# A body has stalled if fewer bytes arrive within the setting `timeout_s`.
MIN_PROGRESS = 1024

# The key of the ASGI scope under which the access log finds the body's length.
BODY_BYTES = "mmhash.body_bytes"

# The key of the ASGI scope under which our own server offers what ASGI lacks (server/cycle.py).
CYCLE = "mmhash.cycle"


def declared_length(request: Request) -> int | None:
    """Return the Content-Length, or None if it is missing or invalid."""
    return parse_natural(header_of(request.scope["headers"], b"content-length") or "")


async def read_body(
    request: Request,
    limit: int,
    take: Callable[[bytes | memoryview], None],
    stall_timeout_s: float,
) -> int:
    """Pass each piece of the body to `take` as it arrives, and return the body's length.

    A longer body than `limit` is refused. The memory of a piece is reused once `take` has returned.
    """
    refuse_compressed(request)  # every body is read here, so no caller can forget it
    if (length := declared_length(request) or 0) > limit:
        raise too_large(limit, length)
    body = _Body(limit, take)
    cycle = request.scope.get(CYCLE)
    try:
        with tracing.span("receive"):
            if cycle is not None and cycle.has_whole_body:
                body.take(cycle.take_body())
            else:
                receive = cycle.receive_body if cycle else partial(_receive_messages, request)
                with StallTimer(stall_timeout_s) as timer:
                    await receive(body.take, timer.count)
            tracing.note("mmhash.body_bytes", body.length)
    finally:
        request.scope[BODY_BYTES] = body.length
        metrics.BODY_BYTES.inc(body.length)
    return body.length


def refuse_compressed(request: Request) -> None:
    """Refuse a compressed body: a proxy or engine that decompresses it would see other bytes."""
    for name, value in request.scope["headers"]:
        if name in _COMPRESSION_HEADERS and value.lower() != b"identity":
            reason = f"{name.decode()} is {shown(value.decode('latin-1'))}: send the body as it is"
            raise Problem("unsupported-encoding", reason=reason)


def too_large(limit: int, length: int | None = None) -> Problem:
    """Return the problem of a body longer than `limit` bytes."""
    sent = "the body is longer" if length is None else f"the body has {length} bytes"
    return Problem("body-too-large", reason=f"{sent}: at most {limit} bytes are accepted")


def refuse_many_values(text: bytes | bytearray) -> None:
    """Refuse JSON text with too many values to parse in one call."""
    if has_many_values(text):
        raise Problem("body-too-large", reason="the JSON has too many values")


class _Body:
    """The length of a body so far, and its limit."""

    def __init__(self, limit: int, take: Callable[[bytes | memoryview], None]) -> None:
        self.length = 0
        self._limit = limit
        self._take = take

    def take(self, piece: bytes | memoryview) -> None:
        """Count a piece and pass it on."""
        self.length += len(piece)
        if self.length > self._limit:
            raise too_large(self._limit)
        self._take(piece)


async def _receive_messages(
    request: Request,
    take: Callable[[bytes | memoryview], None],
    count: Callable[[int], None],
) -> None:
    receive = request.receive
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        if piece := message["body"]:
            count(len(piece))
            take(piece)
        if not message.get("more_body", False):
            return


class StallTimer:
    """Cancels the task if its body stalls. One timer serves the whole body."""

    def __init__(self, seconds: float) -> None:
        self._length = 0
        self._seconds = seconds
        self._last_length = 0
        self._stalled = False

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._seconds, self.on_timer)
        return self

    def count(self, nbytes: int) -> None:
        """Count bytes that have arrived."""
        self._length += nbytes

    def on_timer(self) -> None:
        """Cancel the task if too few bytes have arrived since the last time."""
        if self._length - self._last_length < MIN_PROGRESS and self._task is not None:
            self._stalled = True
            self._task.cancel()
            return
        self._last_length = self._length
        self._timer = self._loop.call_later(self._seconds, self.on_timer)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._stalled and self._task is not None:
            self._task.uncancel()
            if kind is asyncio.CancelledError:
                raise Problem("stalled-body") from None
