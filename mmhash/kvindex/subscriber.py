"""Connections to an engine's KV events: the subscription, and requests for replays.

A message is a topic, a number of 8 bytes and a batch. A replay request is an empty frame and the
first number, sent over DEALER. A replay ends with the number -1.
"""

import contextlib
import time
from collections.abc import Iterator

import zmq

from mmhash.errors import InputValueError, LimitError, TransportError
from mmhash.kvindex import zmtp
from mmhash.kvindex.events import MAX_BYTES

# libzmq receives in pieces of up to 8 KiB. What a subscriber does not read, the publisher keeps.
QUEUED_PIECES = 4096
# Replays come in one burst, and the engine drops messages that find a full queue.
QUEUED_REPLAY_PIECES = 16_384
MAX_REPLAY_BYTES = 2 << 20  # a batch with 400 000 tokens

# One socket is read for this long, or for this many pieces, before the others have their turn.
SLICE_S = 0.001
_PIECES_AT_ONCE = 64

_PEER = b"peer"

END = (-1).to_bytes(8, "big", signed=True)
LAST = (1 << 63) - 1  # no batch has this number, because no batch could follow it


Context = zmq.Context[zmq.Socket[bytes]]


class EngineSocket:
    """A connection to one socket of an engine, established in the background.

    `heard` is when the peer last sent anything.
    """

    def __init__(self, socket: zmq.Socket[bytes], request: bytes, max_bytes: int) -> None:
        """Start the handshake on a connected socket; `request` is sent when the handshake ends."""
        self.socket = socket
        self.heard = time.monotonic()
        # How long the handshake or a ping has been unanswered. Silence alone proves nothing: this
        # process may have been suspended.
        self._asked: float | None = self.heard
        self._request = request
        self._decoder = zmtp.Decoder(max_bytes)
        self._is_open = False

    @property
    def is_ready(self) -> bool:
        """True once the handshake has ended."""
        return self._decoder.is_ready

    def receive(self) -> list[list[bytes]] | None:
        """Return the messages completed by one more piece, or None if nothing has arrived.

        Raise TransportError if the connection has ended or must be closed.
        """
        try:
            _, piece = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        self.heard = time.monotonic()
        if not piece and self._is_open:
            raise TransportError("the peer has closed the connection")
        self._is_open = True  # the first piece is empty
        messages = self._decoder.feed(piece)
        self._asked = None if self.is_ready else self.heard
        if self._decoder.is_ready and self._request:
            _send(self.socket, self._request)
            self._request = b""
        if self._decoder.pongs:
            _send(self.socket, self._decoder.pongs)
            self._decoder.pongs = b""
        return messages

    def messages(self) -> Iterator[list[bytes]]:
        """Yield the messages that have arrived, for one time slice."""
        until = time.monotonic() + SLICE_S
        for _ in range(_PIECES_AT_ONCE):
            messages = self.receive()
            if messages is None:
                return
            yield from messages
            if time.monotonic() > until:
                return

    def ping(self) -> None:
        """Make the peer send something."""
        if self._asked is None:
            self._asked = time.monotonic()
        if self.is_ready:
            _send(self.socket, zmtp.ping())

    def unanswered_s(self) -> float:
        """Return how many seconds a ping or the handshake has been unanswered."""
        return 0.0 if self._asked is None else time.monotonic() - self._asked

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def subscribe(context: Context, endpoint: str) -> EngineSocket:
    """Return a subscription to all topics of an endpoint, which connects in the background."""
    socket = _connect(context, endpoint, "events", QUEUED_PIECES, b"SUB")
    return EngineSocket(socket, zmtp.encode([b"\1"]), MAX_BYTES)


def request_replay(context: Context, endpoint: str, start: int) -> EngineSocket:
    """Request all batches from a number on; return the connection that receives them.

    Each request has its own connection, so the rest of an earlier reply is never mistaken for this
    reply.
    """
    socket = _connect(context, endpoint, "replay", QUEUED_REPLAY_PIECES, b"DEALER")
    request = zmtp.encode([b"", start.to_bytes(8, "big")])
    return EngineSocket(socket, request, MAX_REPLAY_BYTES)


def read_message(frames: list[bytes]) -> tuple[int, bytes] | None:
    """Return the number and the batch in a message, or None if the message is unreadable.

    SGLang's replays before 0.5.23 have no topic. All replays begin with an empty frame.
    """
    if not 2 <= len(frames) <= 4 or len(frames[-2]) != 8:
        return None
    number = int.from_bytes(frames[-2], "big", signed=True)
    return (number, frames[-1]) if 0 <= number < LAST else None


def is_end(frames: list[bytes]) -> bool:
    """Return True if a message ends a replay."""
    return len(frames) >= 2 and frames[-2] == END


def _connect(
    context: Context, endpoint: str, name: str, queued: int, socket_type: bytes
) -> zmq.Socket[bytes]:
    """Return a socket that is connecting, and that has sent the first half of the handshake."""
    try:
        socket = context.socket(zmq.STREAM)
    except zmq.ZMQError as error:
        raise LimitError(f"no more connections are possible: {error}") from None
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVHWM, queued)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    socket.setsockopt(zmq.CONNECT_ROUTING_ID, _PEER)
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        socket.close()
        raise InputValueError(
            f"{name} must be an endpoint such as tcp://127.0.0.1:5557: {error}"
        ) from None
    _send(socket, zmtp.greeting(socket_type))
    return socket


def _send(socket: zmq.Socket[bytes], data: bytes) -> None:
    with contextlib.suppress(zmq.ZMQError):  # a lost connection is noticed on reading
        socket.send_multipart([_PEER, data], zmq.NOBLOCK)
