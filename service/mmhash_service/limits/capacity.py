"""Admission: limits the bytes that all requests hold together, and the items of each request."""

from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from mmhash_service.problems.problem import Problem
from mmhash_service.settings import Settings
from mmhash_service.telemetry import metrics

# A streamed body holds the piece being hashed and the next piece.
STREAM_BYTES = 256 << 10

# The most items, parts or tensors of a body.
MAX_ITEMS = 1000

# All images of a request may decode to this many bytes for each pixel of max_pixels, beyond 256
# bytes for each byte of their files. Photographs stay below the latter. Without the limit, a small
# form with a thousand tiny WebPs could keep a core busy for hours.
_DECODED_PER_PIXEL = 32
_DECODED_PER_BYTE = 256


class Admission:
    """The bytes held by a request, or by one of its parts. Items count for the whole request."""

    def __init__(self, limits: "Limits", whole: "Admission | None" = None) -> None:
        self._limits = limits
        self._whole = whole
        self.held = 0
        self._items = 0
        self._decoded = 0

    def count_items(self, items: int) -> None:
        """Count items of the request. Raise the problem `too-many-items` beyond the limit."""
        whole = self._whole or self
        whole._items += items
        if whole._items > MAX_ITEMS:
            reason = f"there are {whole._items} items or more"
            raise Problem("too-many-items", reason=f"{reason}; at most {MAX_ITEMS} are accepted")

    def count_decoded(self, nbytes: int, encoded_nbytes: int) -> None:
        """Count what a file decoded to. Raise the problem `too-many-items` beyond the limit."""
        whole = self._whole or self
        whole._decoded += max(0, nbytes - _DECODED_PER_BYTE * encoded_nbytes)
        if whole._decoded > self._limits.max_decoded:
            raise Problem("too-many-items", reason="the items decode to too many bytes")

    def __enter__(self) -> Self:
        """Reserve bytes for the stream buffer. On exit, release them and all bytes held since."""
        self.hold(STREAM_BYTES)
        return self

    def __exit__(self, *_: object) -> None:
        self.release(keep=0)

    def reserve(self) -> "Admission":
        """Return the admission of a part of the request, to be used as a context manager."""
        return Admission(self._limits, self._whole or self)

    def hold(self, nbytes: int) -> None:
        """Reserve `nbytes` more, or raise the problem `busy`.

        A request for which there will never be room gets `body-too-large`: do not try it again.
        """
        if self.held + nbytes > self._limits.max_held:
            reason = f"the request takes more than the {self._limits.max_held} bytes of"
            raise Problem("body-too-large", reason=f"{reason} the setting max_held_bytes")
        if self._limits.held + nbytes > self._limits.max_held:
            raise Problem("busy")
        self._limits.held += nbytes
        self.held += nbytes

    def release(self, keep: int = STREAM_BYTES) -> None:
        """Release the bytes of the request, except its stream buffer."""
        freed = self.held - keep
        self._limits.held -= freed
        self.held = keep


class Limits:
    """Counts a process's running requests, and limits the bytes that they hold."""

    def __init__(self, settings: Settings) -> None:
        self.max_held = settings.max_held_bytes
        self.max_decoded = _DECODED_PER_PIXEL * settings.max_pixels
        self.held = 0
        self.unread = 0
        self.calls = 0
        # True after SIGTERM: running requests are answered, and new ones are refused.
        self.draining = False
        metrics.MAX_HELD_BYTES.set(self.max_held)

    @contextmanager
    def admit(self) -> Iterator[Admission]:
        """Admit a request, or refuse it before its body is read."""
        if self.draining:
            raise Problem("draining")
        self.calls += 1
        try:
            with Admission(self) as admission:
                yield admission
        except CancelledError:
            if not self.draining:
                raise
            raise Problem("draining") from None  # the grace period is over
        finally:
            self.calls -= 1

    def report(self) -> None:
        """Set the gauges. The server calls this ten times a second, not for every request."""
        metrics.CALLS.set(self.calls)
        metrics.HELD_BYTES.set(self.held)

    @contextmanager
    def reserve_response(self, nbytes: int) -> Iterator[None]:
        """Reserve a long response's bytes until the client has read it. One response always fits.

        They do not count as held: clients that read slowly must not keep others from hashing.
        """
        if self.unread and self.unread + nbytes > self.max_held:
            raise Problem("busy")
        self.unread += nbytes
        try:
            yield
        finally:
            self.unread -= nbytes
