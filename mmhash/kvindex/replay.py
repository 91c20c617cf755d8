"""The answer to one request for a replay: received at once, and applied in parts.

An engine sends a replay as fast as it can, and drops what does not fit in its queue, the end too.
So all that has arrived is received before any of it is applied, up to a limit in bytes.
"""

from collections import deque

import zmq

from mmhash.kvindex.subscriber import is_end, read_message

# A longer replay is cut off, and its rest is asked for. An engine keeps 10 000 batches.
MAX_MESSAGES = 20_000
MAX_BYTES = 64 << 20


class Replay:
    """The batches of a replay that were received and are not applied yet."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self.batches: deque[tuple[int, bytes]] = deque()
        self.has_end = False
        self._messages = 0
        self._nbytes = 0

    @property
    def is_cut(self) -> bool:
        """True if it is longer than the limits."""
        return self._messages > MAX_MESSAGES or self._nbytes > MAX_BYTES

    def receive(self) -> int:
        """Receive what has arrived, within the limits; return the number of unreadable messages."""
        garbage = 0
        while not (self.has_end or self.is_cut):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._messages += 1
            self._nbytes += sum(map(len, frames))
            message = read_message(frames)
            if is_end(frames):
                self.has_end = True
            elif message is None:
                garbage += 1
            else:
                self.batches.append(message)
        return garbage

    def take(self) -> tuple[int, bytes]:
        """Return the next batch."""
        number, payload = self.batches.popleft()
        self._nbytes -= len(payload)
        return number, payload
