"""The direct way of a long body: from the socket to its consumer, without the queue of ASGI.

uvloop, the parser and uvicorn copy each piece of a body, three times in all. Here the socket is
read into a buffer that fits a core's cache, and each read is consumed at once on the event loop: it
takes 40 µs to hash 256 KiB. The application calls the function that the scope has for this
(`RECEIVE_BODY`). A chunked body is still parsed, which copies it once.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

Consume = Callable[[bytes | memoryview], object]
"""Processes the next piece, whose memory is reused afterwards."""

Count = Callable[[int], None]
"""Receives the number of bytes as soon as they arrive."""


class _LoopBuffer(threading.local):
    """One buffer for all connections of an event loop, which runs in one thread.

    It stays in the core's cache, because a read is consumed before the next one begins. Larger
    reads leave the cache before they are hashed; smaller ones cost calls. Two loops must not share
    it: hashing releases the GIL.
    """

    def __init__(self) -> None:
        self.view = memoryview(bytearray(256 << 10))


_buffer = _LoopBuffer()


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

    def body_bytes_received(self, piece: memoryview) -> None:
        """Process a piece, and take the connection back at the end of the body."""

    def eof_received(self) -> None:
        """Note that the client sends no more."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End all requests of the connection."""

    def pause_writing(self) -> None:
        """Stop responses until the client has read more."""

    def resume_writing(self) -> None:
        """Continue responses."""


class BodyReceiver(asyncio.BufferedProtocol):
    """The transport's protocol while a body is received; `limit()` bytes may be read at once."""

    def __init__(self, connection: Connection, limit: Callable[[], int]) -> None:
        self._connection = connection
        self._limit = limit

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for the next read."""
        del sizehint
        return _buffer.view[: self._limit()]

    def buffer_updated(self, nbytes: int) -> None:
        """Process what was read."""
        self._connection.body_bytes_received(_buffer.view[:nbytes])

    def eof_received(self) -> None:
        """Pass on to the connection."""
        self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on to the connection."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass on to the connection."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass on to the connection."""
        self._connection.resume_writing()
