"""Reads the messages of a ZeroMQ peer from the bytes of its connection, within limits.

libzmq keeps all parts of a message until the last part arrives, and does not limit their sum. So an
endless message would take all memory. Therefore libzmq only connects (ZMQ_STREAM), and this module
reads ZMTP 3 (rfc.zeromq.org/spec/23) with the mechanism NULL, which all engines use.
"""

from collections.abc import Generator, Sequence

from mmhash.errors import TransportError

MAX_PARTS = 8
MAX_COMMAND_BYTES = 4096
_HEAD_BYTES = 1024  # the parts beside the payload: a topic and a number

_MORE, _LONG, _COMMAND = 1, 2, 4
_GREETING_BYTES = 64
_MECHANISM = b"NULL".ljust(20, b"\0")
_PING, _PONG, _READY, _ERROR = b"\4PING", b"\4PONG", b"\5READY", b"\5ERROR"


def greeting(socket_type: bytes) -> bytes:
    """Return the first bytes of a connection."""
    version = b"\xff" + bytes(8) + b"\x7f\3\0"
    metadata = b"\x0bSocket-Type" + len(socket_type).to_bytes(4, "big") + socket_type
    return (version + _MECHANISM).ljust(_GREETING_BYTES, b"\0") + _command(_READY + metadata)


def encode(parts: Sequence[bytes]) -> bytes:
    """Return a message of short parts in its wire form."""
    last = len(parts) - 1
    frames = [bytes([_MORE * (at < last), len(part)]) + part for at, part in enumerate(parts)]
    return b"".join(frames)


def ping() -> bytes:
    """Return a command that the peer's I/O thread answers."""
    # a time-out of 0: the peer sets no deadline for the next command
    return _command(_PING + bytes(2))


def _command(body: bytes) -> bytes:
    return bytes([_COMMAND, len(body)]) + body


class Decoder:
    """The messages in the bytes of one connection; raises TransportError beyond the limits.

    `is_ready` says that the peer can receive messages. The caller must send `pongs` to the peer.
    """

    def __init__(self, max_bytes: int) -> None:
        """Make a decoder of messages whose payload has at most `max_bytes`."""
        self.is_ready = False
        self.pongs = b""
        self._max_bytes = max_bytes + _HEAD_BYTES
        self._messages: list[list[bytes]] = []
        self._parts: list[bytes] = []
        self._buffer = bytearray()
        self._reader = self._read()
        self._needed = next(self._reader)

    def feed(self, piece: bytes) -> list[list[bytes]]:
        """Return the messages that end in this piece."""
        self._buffer += piece
        at = 0
        while len(self._buffer) - at >= self._needed:
            end = at + self._needed
            self._needed = self._reader.send(bytes(self._buffer[at:end]))
            at = end
        del self._buffer[:at]
        messages, self._messages = self._messages, []
        return messages

    def _read(self) -> Generator[int, bytes, None]:
        """Parse the connection, as a generator that yields the number of bytes it needs next."""
        head = yield _GREETING_BYTES
        if (head[0], head[9], head[12:32]) != (0xFF, 0x7F, _MECHANISM) or head[10] < 3:
            raise TransportError("the peer does not speak ZMTP 3 with the mechanism NULL")
        while True:
            (flags,) = yield 1
            length = int.from_bytes((yield 8 if flags & _LONG else 1), "big")
            if flags & _COMMAND:
                self._check(length <= MAX_COMMAND_BYTES, "a command that is too long")
                self._take_command((yield length))
                continue
            self._check(self.is_ready, "a message before the handshake")
            nbytes = length + sum(map(len, self._parts))
            self._check(nbytes <= self._max_bytes, "a message that is too long")
            self._parts.append((yield length))
            self._check(len(self._parts) <= MAX_PARTS, "a message of too many parts")
            if not flags & _MORE:
                self._messages.append(self._parts)
                self._parts = []

    @staticmethod
    def _check(is_valid: bool, sent: str) -> None:
        if not is_valid:
            raise TransportError(f"the peer sends {sent}")

    def _take_command(self, body: bytes) -> None:
        if body.startswith(_READY):
            self.is_ready = True
        elif body.startswith(_PING):
            # skip the time-out; a PONG returns at most 16 bytes
            self.pongs += _command(_PONG + body[7:23])
        elif body.startswith(_ERROR):
            raise TransportError("the peer refuses the connection")
