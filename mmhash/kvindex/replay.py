"""The answer to one request for a replay: received at once, and applied in parts.

An engine sends a replay as fast as it can, and drops what does not fit in its queue, the end too.
So all that has arrived is received before any of it is applied, up to limits in bytes and time.
"""

import time
from collections import deque

from mmhash.errors import TransportError
from mmhash.kvindex.subscriber import Connection, is_end, read_message

# A longer replay is cut off, and its rest is asked for. An engine keeps 10 000 batches.
MAX_MESSAGES = 20_000
MAX_BYTES = 64 << 20
# Before the other sockets have their turn. 1000 batches of 12 KB take 15 ms; a peer that sends only
# pings would take the thread for itself.
_RECEIVE_S = 0.05


class Replay:
    """The batches of a replay that were received and are not applied yet."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.batches: deque[tuple[int, bytes]] = deque()
        self.has_end = False
        self._is_lost = False
        self._messages = 0
        self._nbytes = 0

    @property
    def is_cut(self) -> bool:
        """True if it is longer than the limits, or its connection has ended."""
        return self._is_lost or self._messages > MAX_MESSAGES or self._nbytes > MAX_BYTES

    def receive(self) -> int:
        """Receive what has arrived, within the limits; return the number of unreadable messages."""
        garbage = 0
        until = time.monotonic() + _RECEIVE_S
        while not (self.has_end or self.is_cut) and time.monotonic() < until:
            try:
                messages = self.connection.receive()
            except TransportError:
                self._is_lost = True
                break
            if messages is None:
                break
            garbage += sum(map(self._add, messages))
        return garbage

    def _add(self, frames: list[bytes]) -> bool:
        """Keep the batch of a message; return True if it is unreadable."""
        if self.has_end:
            return False
        self._messages += 1
        self._nbytes += sum(map(len, frames))
        self.has_end = is_end(frames)
        message = read_message(frames)
        if message is not None:
            self.batches.append(message)
        return message is None and not self.has_end

    def take(self) -> tuple[int, bytes]:
        """Return the next batch."""
        number, payload = self.batches.popleft()
        self._nbytes -= len(payload)
        return number, payload
