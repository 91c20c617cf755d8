"""Connections to an engine's KV events: the subscription, and requests for replays.

Messages are a topic, a number of 8 bytes and a batch. A replay is asked for with an empty frame and
the first number, over DEALER, and ends with the number -1.
"""

import contextlib
import time
from collections import deque

import zmq

from mmhash.errors import InputValueError, LimitError, TransportError
from mmhash.kvindex import zmtp
from mmhash.kvindex.events import MAX_BYTES

# libzmq receives in pieces of up to 8 KiB. A publisher keeps what a subscriber does not read.
QUEUED_PIECES = 4096
# Replays come in one burst, and the engine drops what finds a full queue: 1000 batches of 12 KB
# arrive at once.
QUEUED_REPLAY_PIECES = 16_384
MAX_REPLAY_BYTES = 2 << 20  # a batch with 400 000 tokens

# A longer replay is cut off, and its rest is asked for. An engine keeps 10 000 batches.
MAX_MESSAGES = 20_000
MAX_RECEIVED_BYTES = 64 << 20
# Before the other sockets have their turn: a peer that sends only pings would take the thread for
# itself.
_RECEIVE_S = 0.05

_PEER = b"peer"

END = (-1).to_bytes(8, "big", signed=True)
LAST = (1 << 63) - 1  # no batch has this number, because one that follows could not be asked for


Context = zmq.Context[zmq.Socket[bytes]]


class EngineSocket:
    """A connection to one socket of an engine, made in the background.

    `heard` is the time at which the peer last sent anything.
    """

    def __init__(self, socket: zmq.Socket[bytes], request: bytes, max_bytes: int) -> None:
        """Start the handshake on a connected socket; `request` is sent at its end."""
        self.socket = socket
        self.heard = time.monotonic()
        # Since then nothing has answered the handshake or a ping. Silence alone is no sign: this
        # process may have been suspended.
        self._asked: float | None = self.heard
        self._request = request
        self._decoder = zmtp.Decoder(max_bytes)
        self._is_open = False

    @property
    def is_ready(self) -> bool:
        """True from the end of the handshake."""
        return self._decoder.is_ready

    def receive(self) -> list[list[bytes]] | None:
        """Return the messages that one more piece completes; None if nothing has arrived.

        A TransportError says that the connection has ended or must be closed.
        """
        try:
            _, piece = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        self.heard = time.monotonic()
        if not piece and self._is_open:
            raise TransportError("the peer has closed the connection")
        self._is_open = True  # the first one is empty
        messages = self._decoder.feed(piece)
        self._asked = None if self.is_ready else self.heard
        if self._decoder.is_ready and self._request:
            _send(self.socket, self._request)
            self._request = b""
        if self._decoder.pongs:
            _send(self.socket, self._decoder.pongs)
            self._decoder.pongs = b""
        return messages

    def ping(self) -> None:
        """Make the peer send something."""
        if self._asked is None:
            self._asked = time.monotonic()
        if self.is_ready:
            _send(self.socket, zmtp.ping())

    def unanswered_s(self) -> float:
        """Return the seconds for which a ping or the handshake has had no answer."""
        return 0.0 if self._asked is None else time.monotonic() - self._asked

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class Replay:
    """The batches of a replay that were received and are not applied yet.

    An engine sends a replay as fast as it can, and drops what does not fit in its queue, the end
    too. So all that has arrived is received before any of it is applied.
    """

    def __init__(self, connection: EngineSocket) -> None:
        self.connection = connection
        self.batches: deque[tuple[int, bytes]] = deque()
        self.has_end = False
        self._is_lost = False
        self._messages = 0
        self._nbytes = 0

    @property
    def is_cut(self) -> bool:
        """True if it is longer than the limits, or its connection has ended."""
        return self._is_lost or self._messages > MAX_MESSAGES or self._nbytes > MAX_RECEIVED_BYTES

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


def subscribe(context: Context, endpoint: str) -> EngineSocket:
    """Return a subscription to all topics of an endpoint, connected in the background."""
    socket = _connect(context, endpoint, "events", QUEUED_PIECES, b"SUB")
    return EngineSocket(socket, zmtp.encode([b"\1"]), MAX_BYTES)


def request_replay(context: Context, endpoint: str, start: int) -> EngineSocket:
    """Ask for all batches from a number on; return the connection that receives them.

    Each request has its own, so the rest of an earlier answer cannot be taken for this one.
    """
    socket = _connect(context, endpoint, "replay", QUEUED_REPLAY_PIECES, b"DEALER")
    request = zmtp.encode([b"", start.to_bytes(8, "big")])
    return EngineSocket(socket, request, MAX_REPLAY_BYTES)


def read_message(frames: list[bytes]) -> tuple[int, bytes] | None:
    """Return the number and the batch of a message, None if it is not such a message.

    SGLang's replays before 0.5.23 have no topic; all replays begin with an empty frame.
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
    """Return a socket that connects, and that sends the first half of the handshake."""
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
            f"{name} is an endpoint such as tcp://127.0.0.1:5557: {error}"
        ) from None
    _send(socket, zmtp.greeting(socket_type))
    return socket


def _send(socket: zmq.Socket[bytes], data: bytes) -> None:
    with contextlib.suppress(zmq.ZMQError):  # a lost connection is noticed when it is read
        socket.send_multipart([_PEER, data], zmq.NOBLOCK)
