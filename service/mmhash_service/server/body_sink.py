"""The direct path of a long body from the socket to its consumer, without the queue of ASGI.

On the usual path, uvloop, the parser and uvicorn each copy every piece of a body. Here the socket
is read into a buffer that fits a core's cache, and each read is consumed at once on the event loop;
hashing 1 MiB does not block the loop for long. The application calls the function that the scope
holds for this (`RECEIVE_BODY`). A chunked body is still parsed, which copies it once.

Handing each read to another thread was measured. Many threads gain some throughput on idle cores,
for a quarter to a half more CPU time per byte, and nothing on two cores. More processes use other
cores, too.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

Consume = Callable[[bytes | memoryview], object]
"""Processes the next piece, whose memory is reused afterwards."""

Count = Callable[[int], None]
"""Is told the number of bytes as soon as they arrive."""


# About the size of a core's cache; smaller reads are slower.
READ_BYTES = 1 << 20

# How many reads all bodies together get in one turn of the event loop. uvloop reads a socket up to
# 32 times in a turn, so many bodies would delay an answer to /health for seconds.
_READS_PER_TURN = 8


class _Turns:
    """The bodies that an event loop is receiving, and one buffer for all of them.

    One buffer is enough, because a read is consumed before the next begins. Loops in different
    threads must not share it, because hashing releases the GIL.
    """

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(READ_BYTES))
        self._waiting: deque[BodyReceiver] = deque()

    def wait(self, receiver: "BodyReceiver", loop: asyncio.AbstractEventLoop) -> None:
        """Let a body wait for its next turn."""
        if not self._waiting:
            loop.call_soon(self._begin, loop)
        self._waiting.append(receiver)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(len(self._waiting), _READS_PER_TURN)):
            self._waiting.popleft().resume()
        if self._waiting:
            loop.call_soon(self._begin, loop)


_turns_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def _turns_of(loop: asyncio.AbstractEventLoop) -> _Turns:
    turns = _turns_by_loop.get(loop)
    if turns is None:
        turns = _turns_by_loop[loop] = _Turns()
    return turns


class BodySink:
    """The consumer of a body that is being received.

    An error of the consumer ends `done`. The rest of the body is received and dropped, because the
    client reads the response only after sending it.
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


class HeadParser(Protocol):
    """The protocol that parsed the head and gets the connection back."""

    def body_bytes_received(self, piece: memoryview) -> None:
        """Process a piece; at the end of the body, take the connection back."""

    def eof_received(self) -> bool:
        """Note that the client sends no more; return True if it still gets a response."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End all requests of the connection."""

    def pause_writing(self) -> None:
        """Stop responses until the client has read more."""

    def resume_writing(self) -> None:
        """Continue responses."""


class Flow(Protocol):
    """Controls the reads of a connection."""

    def pause_reading(self) -> None:
        """Stop reading."""

    def resume_reading(self) -> None:
        """Continue to read."""


class BodyReceiver(asyncio.BufferedProtocol):
    """The transport's protocol while a body is received; `limit()` bytes may be read at once."""

    def __init__(
        self,
        connection: HeadParser,
        limit: Callable[[], int],
        flow: Flow,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._limit = limit
        self._flow = flow
        self._loop = loop
        self._turns = _turns_of(loop)
        self._has_ended = False

    def end(self) -> None:
        """End the reception."""
        self._has_ended = True

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for the next read."""
        del sizehint
        return self._turns.buffer[: self._limit()]

    def buffer_updated(self, nbytes: int) -> None:
        """Process what was read, and wait for the next turn."""
        self._connection.body_bytes_received(self._turns.buffer[:nbytes])
        if not self._has_ended:
            self._flow.pause_reading()
            self._turns.wait(self, self._loop)

    def resume(self) -> None:
        """Continue to read, unless the body has ended."""
        if not self._has_ended:
            self._flow.resume_reading()

    def eof_received(self) -> bool:
        """Pass on to the connection."""
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on to the connection."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass on to the connection."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass on to the connection."""
        self._connection.resume_writing()
