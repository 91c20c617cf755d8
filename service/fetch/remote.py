"""What a host answers: its head is checked before its content is read, and that is bounded."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpcore
import httpx

from mmhash_service.api.problems import Problem
from mmhash_service.bodies.parsing import parse_natural
from mmhash_service.fetch.failures import Failed
from mmhash_service.fetch.validators import Validator, validator_of
from mmhash_service.runtime import metrics

# A host may send a byte at a time, 10000 of them in what is read at once: 67 ms of the event loop,
# and 0.6 ms so.
_SMALL = 1024


class Remote:
    """Content that a host is about to send, or says to be what we know already."""

    def __init__(
        self, response: httpcore.Response, headers: httpx.Headers, max_bytes: int, *, keep: bool
    ) -> None:
        self._response = response
        self._max_bytes = max_bytes
        self.unchanged = response.status == 304
        self.length = None if self.unchanged else _length(response.status, headers)
        if self.length is not None and self.length > max_bytes:
            raise Problem("url-too-large")
        # How much of it has been read.
        self.count = 0
        # By what to ask for the same content again; None if it is not to be kept.
        self.validator: Validator | None = validator_of(headers) if keep else None

    async def read(self, take: Callable[[bytes], Awaitable[None] | None]) -> None:
        """Hand each piece to `take`, as it comes; what that gives back, if anything, is waited for.

        No answer is longer or shorter than it says when this returns.
        """
        try:
            async for piece in self._response.aiter_stream():
                self.count += len(piece)
                if self.count > self._max_bytes:
                    raise Problem("url-too-large")
                waiting = take(piece)
                if waiting is not None:
                    await waiting
                elif len(piece) < _SMALL:
                    await asyncio.sleep(0)
        finally:
            metrics.FETCHED_BYTES.inc(self.count)
        if _leftover(self._response):
            # It would be read as the head of the next answer.
            await self._response.extensions["network_stream"].aclose()
            raise Failed("more came than was said")


def _length(status: int, headers: httpx.Headers) -> int | None:
    """How long the content is, if its head says so; None if it comes in chunks that tell."""
    if status != 200:
        raise Failed(f"status {status}")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Failed("content-encoding")
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    # Content that ends where its connection does may as well have been cut short.
    if (length is None) == (coding is None):
        raise Failed("no length, or two")
    return None if length is None else parse_natural(length)


def _leftover(response: httpcore.Response) -> bytes:
    # httpcore tells nobody. It is pinned, and a test says when its inside is another.
    stream: Any = response.stream
    leftover: bytes = stream._stream._connection._h11_state.trailing_data[0]
    return leftover
