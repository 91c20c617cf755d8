"""The direct way of a long body: from the socket to its consumer, without the queue of ASGI.

The parser and uvicorn copy each piece of a body three times. Here the socket is read into a buffer
that fits a core's cache, and the buffer is consumed on the event loop as soon as it is full: it
takes 40 µs to hash 256 KiB. The application calls the function that the scope has for this
(`RECEIVE_BODY`).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

Consume = Callable[[bytes | memoryview], object]
"""Processes the next piece, whose memory is reused afterwards."""

Count = Callable[[int], None]
"""Receives the number of bytes as soon as they arrive."""

# Larger ones leave the cache before they are hashed, smaller ones cost more calls.
BUFFER_BYTES = 256 << 10
_MAX_FREE = 8
_free_buffers: list[bytearray] = []

# A hash of a piece that begins and ends at a multiple of this is faster (bodies/stream.py).
_ALIGNMENT = 64 << 10


class BodySink:
    """The consumer of a body that is being received.

    An error of the consumer ends `done`; the rest of the body is received and dropped, so that the
    client reads the response.
    """

    def __init__(self, consume: Consume, count: Count, loop: asyncio.AbstractEventLoop) -> None:
        self._consume = consume
        self._count = count
        self.done: asyncio.Future[None] = loop.create_future()

    def count(self, nbytes: int) -> None:
        """Report bytes that have arrived."""
        if not self.done.done():
            self._count(nbytes)

    def feed(self, piece: bytes | memoryview) -> None:
        """Process a piece."""
        if not self.done.done():
            try:
                self._consume(piece)
            except Exception as error:  # noqa: BLE001  (the task that waits raises it)
                self.done.set_exception(error)

    def complete(self) -> None:
        """End the body."""
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        """End the wait for a body that will not arrive."""
        if not self.done.done():
            self.done.set_exception(error)


class Connection(Protocol):
    """The protocol that has parsed the head, and gets the connection back."""

    def on_body_bytes(self) -> None:
        """Note that bytes have arrived."""

    def end_received_body(self) -> None:
        """Parse what follows the body."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End all requests of the connection."""

    def pause_writing(self) -> None:
        """Stop responses until the client has read more."""

    def resume_writing(self) -> None:
        """Continue responses."""


class BodyReceiver(asyncio.BufferedProtocol):
    """The transport's protocol while `missing` bytes of a body are received after `received`."""

    def __init__(self, connection: Connection, sink: BodySink, received: int, missing: int) -> None:
        self._connection = connection
        self._sink = sink
        self._missing = missing
        self._buffer = _free_buffers.pop() if _free_buffers else bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        # The pieces after the first one are aligned.
        self._end = min(BUFFER_BYTES - received % _ALIGNMENT, missing)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for bytes of this body only."""
        del sizehint
        return self._view[self._filled : self._end]

    def buffer_updated(self, nbytes: int) -> None:
        """Consume the buffer if it is full or has the end of the body."""
        self._connection.on_body_bytes()
        self._sink.count(nbytes)
        self._filled += nbytes
        self._missing -= nbytes
        if self._filled < self._end:
            return
        self._sink.feed(self._view[: self._filled])
        self._filled = 0
        self._end = min(BUFFER_BYTES, self._missing)
        if self._missing == 0:
            self._release()
            self._sink.complete()
            self._connection.end_received_body()

    def eof_received(self) -> None:
        """Let the transport close: the body is incomplete."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the connection."""
        self._release()
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass on to the connection."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass on to the connection."""
        self._connection.resume_writing()

    def _release(self) -> None:
        self._view = memoryview(b"")
        if len(_free_buffers) < _MAX_FREE:
            _free_buffers.append(self._buffer)
