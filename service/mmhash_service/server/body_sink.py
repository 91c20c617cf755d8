"""The direct path of a long body: from the socket to its consumer, without the queue of ASGI.

uvloop, the parser and uvicorn copy each piece of a body, three times in all. Here the socket is
read into a buffer that fits a core's cache, and each read is consumed at once on the event
loop, which hashing 1 MiB does not block for long. The application calls the function that the scope
has for this (`RECEIVE_BODY`). A chunked body is still parsed, which copies it once.

To hand each read to another thread instead was measured: on 16 cores, idle otherwise, seven threads
received 4 bodies of 20 MiB at once at 3.3 GB/s instead of 2.4, and 128 at 2.9 instead of 2.1, with
46 and 23 % more CPU time for each GB; one thread made 128 slower. On two cores nothing was gained.
More processes use other cores, too.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

Consume = Callable[[bytes | memoryview], object]
"""Processes the next piece, whose memory is reused afterwards."""

Count = Callable[[int], None]
"""Receives the number of bytes as soon as they arrive."""


# A core's cache is about as large. One body of 20 MiB after another is hashed at 1.50 GB/s, with
# 512 KiB at 1.44, with 256 KiB at 1.32; four at once at 1.47, 1.24 and 1.16.
READ_BYTES = 1 << 20

# The reads of one turn of the event loop, of all bodies together. uvloop reads a socket up to 32
# times in a turn, so many bodies would delay an answer to /health for seconds.
_READS_PER_TURN = 8


class _Turns:
    """The bodies that an event loop receives, and one buffer for all of them.

    One is enough, because a read is consumed before the next one begins. Two loops in threads must
    not share it: hashing releases the GIL.
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


class HeadParser(Protocol):
    """The protocol that has parsed the head, and gets the connection back."""

    def body_bytes_received(self, piece: memoryview) -> None:
        """Process a piece, and take the connection back at the end of the body."""

    def eof_received(self) -> bool:
        """Note that the client sends no more; return whether it still gets a response."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End all requests of the connection."""

    def pause_writing(self) -> None:
        """Stop responses until the client has read more."""

    def resume_writing(self) -> None:
        """Continue responses."""


class Flow(Protocol):
    """The control of the reads of a connection."""

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
