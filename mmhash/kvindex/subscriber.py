"""ZeroMQ sockets to an engine's KV events: the subscription, and requests for replays.

Messages are a topic, a number of 8 bytes and a batch. A replay is asked for with an empty frame and
the first number, over DEALER, and ends with the number -1.
"""

import zmq

from mmhash.errors import InputValueError
from mmhash.kvindex.events import MAX_BYTES

# A publisher keeps what a subscriber does not read: 32 batches of 16 MiB are half a gigabyte here.
QUEUED_MESSAGES = 32
# Replays come in one burst, and the engine drops what finds a full queue: 1000 batches of 12 KB
# arrive at once. 512 of 2 MiB, each with 400 000 tokens, are 1 GiB here.
QUEUED_REPLAYS = 512
MAX_REPLAY_BYTES = 2 << 20

END = (-1).to_bytes(8, "big", signed=True)
LAST = (1 << 63) - 1  # no batch has this number, because one that follows could not be asked for


Context = zmq.Context[zmq.Socket[bytes]]


def subscribe(context: Context, endpoint: str) -> zmq.Socket[bytes]:
    """Return a subscription to all topics of an endpoint, connected in the background."""
    socket = _socket(context, zmq.SUB, {zmq.RCVHWM: QUEUED_MESSAGES})
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    return _connect(socket, endpoint, "events")


def subscribe_monitored(
    context: Context, endpoint: str, *, silence_s: float
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """Return a subscription, and a socket that receives when it is connected or disconnected.

    Pings are answered by the publisher's I/O thread. They end a connection to a machine that is off
    and to a process that is stopped, which TCP alone does not notice for minutes.
    """
    options = {
        zmq.HEARTBEAT_IVL: int(1000 * silence_s / 3),
        zmq.HEARTBEAT_TIMEOUT: int(1000 * silence_s * 2 / 3),
        zmq.RECONNECT_IVL_MAX: 1000,
        zmq.RCVHWM: QUEUED_MESSAGES,
    }
    socket = _socket(context, zmq.SUB, options)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    # Before it connects: on one machine that takes less time than the next line.
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
    return _connect(socket, endpoint, "events"), monitor


def request_replay(context: Context, endpoint: str, start: int) -> zmq.Socket[bytes]:
    """Ask for all batches from a number on; return the socket that receives them.

    Each request has its own socket, so the rest of an earlier answer cannot be taken for this one.
    """
    options = {zmq.RCVHWM: QUEUED_REPLAYS, zmq.MAXMSGSIZE: MAX_REPLAY_BYTES}
    socket = _socket(context, zmq.DEALER, options)
    _connect(socket, endpoint, "replay")
    socket.send_multipart([b"", start.to_bytes(8, "big")], zmq.NOBLOCK)
    return socket


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


def _socket(context: Context, kind: int, options: dict[zmq.SocketOption, int]) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    for option, value in {zmq.MAXMSGSIZE: MAX_BYTES, zmq.LINGER: 0, **options}.items():
        socket.setsockopt(option, value)  # only those set before the connection count
    return socket


def _connect(socket: zmq.Socket[bytes], endpoint: str, name: str) -> zmq.Socket[bytes]:
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        socket.close()
        raise InputValueError(
            f"{name} is an endpoint such as tcp://127.0.0.1:5557: {error}"
        ) from None
    return socket
