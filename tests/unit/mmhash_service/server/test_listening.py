"""Sockets: the kernel keeps a limited part of a body, and a path may have another server's."""

import socket
from collections.abc import Callable
from pathlib import Path

from mmhash_service.server.listening import limit_unread

_SYSTEM_LIMIT = Path("/proc/sys/net/core/rmem_max")


def test_connections_have_the_limit_where_the_system_allows_it() -> None:
    unlimited, limited = _receive_buffer(socket.socket.fileno), _receive_buffer(limit_unread)
    if int(_SYSTEM_LIMIT.read_text()) < 4 << 20:
        assert limited == unlimited
    else:
        assert limited == 8 << 20  # the kernel doubles what it is asked for


def _receive_buffer(prepare: Callable[[socket.socket], object]) -> int:
    """Return the size of the receive buffer of a connection that a listener has accepted."""
    with socket.socket() as listener, socket.socket() as client:
        prepare(listener)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
        connection, _ = listener.accept()
        with connection:
            return connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
