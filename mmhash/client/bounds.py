"""The limits of one request: its deadline, and the bytes to receive."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mmhash.client.effects import Request
from mmhash.client.responses import MAX_ERROR_BODY, ResponseTooLongError

# Reserved for what surrounds a body: the head, interim responses, the lengths of chunks.
_MAX_SURROUNDING = 256 << 10


class Bounds:
    """A deadline of the monotonic clock, and the number of bytes that may still be received."""

    def __init__(self, deadline: float, nbytes: int) -> None:
        self._deadline = deadline
        self._nbytes = nbytes

    def seconds_left(self, timeout_error: type[Exception]) -> float:
        """Return the seconds until the deadline; raise `timeout_error` if it has passed."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise timeout_error
        return left

    def count(self, nbytes: int) -> None:
        """Count received bytes; raise ResponseTooLongError if they exceed the limit."""
        self._nbytes -= nbytes
        if self._nbytes < 0:
            raise ResponseTooLongError


_current: ContextVar[Bounds] = ContextVar("mmhash_client_bounds")


def current_bounds() -> Bounds:
    """Return the limits of the request that this thread or task sends."""
    return _current.get()


@contextmanager
def bounded(request: Request, deadline: float) -> Iterator[Bounds]:
    """Apply a request's limits to the streams that are used in the block."""
    limit = max(request.limit, MAX_ERROR_BODY)
    # The framing of a chunk may be as long as its content.
    bounds = Bounds(deadline, 2 * limit + _MAX_SURROUNDING)
    token = _current.set(bounds)
    try:
        yield bounds
    finally:
        _current.reset(token)
