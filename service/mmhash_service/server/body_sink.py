"""The direct path of a body from the socket to its consumer, without the queue of ASGI.

On the usual path, uvloop, the parser and the queue each copy every piece of a body. Here each read
fills a buffer that fits a core's cache, and the event loop consumes it at once: hashing 1 MiB does
not block the loop for long. `Cycle.receive_body` uses it for what has not arrived yet. The parser
still copies a chunked body once.

No thread helps the event loop with the reads. Handing them over takes more CPU time per byte, and
gains throughput only if cores are idle. More processes use those cores too.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.flow_control import FlowControl

Consume = Callable[[bytes | memoryview], object]
"""Processes the next piece, whose memory is reused afterwards."""

Count = Callable[[int], None]
"""Counts bytes as they arrive."""

# About a core's cache. Smaller reads are slower.
READ_BYTES = 1 << 20

# How many reads one turn of the event loop serves, for all bodies together. uvloop reads a socket
# up to 32 times in a turn, so many bodies would delay an answer to /health for seconds.
_READS_PER_TURN = 8


class _Turns:
    """The bodies that an event loop is receiving, and the buffer that they share.

    Each read is consumed before the next begins. Loops of different threads need buffers of their
    own, because hashing releases the GIL.
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
    """The consumer of a body that is arriving.

    `done` raises an error of the consumer. The rest of the body is then read and dropped, because
    the client may read the response only after it has sent the body.
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
        """Consume a piece."""
        if not self.done.done():
            try:
                self._consume(piece)
            except Exception as error:  # noqa: BLE001  (`done` raises it)
                self.done.set_exception(error)

    def complete(self) -> None:
        """End the body."""
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        """End a body whose rest will not arrive."""
        if not self.done.done():
            self.done.set_exception(error)


class BodyReceiver(asyncio.BufferedProtocol):
    """The transport's protocol while a body arrives. One read takes at most `limit()` bytes."""

    def __init__(
        self,
        connection: asyncio.Protocol,
        take: Callable[[memoryview], None],
        limit: Callable[[], int],
        flow: FlowControl,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._take = take
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
        """Process a read, and wait for the next turn."""
        self._take(self._turns.buffer[:nbytes])
        if not self._has_ended:
            self._flow.pause_reading()
            self._turns.wait(self, self._loop)

    def resume(self) -> None:
        """Continue to read, unless the body has ended."""
        if not self._has_ended:
            self._flow.resume_reading()

    def eof_received(self) -> bool:
        """Forward to the connection."""
        return bool(self._connection.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward to the connection."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Forward to the connection."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Forward to the connection."""
        self._connection.resume_writing()
