"""Serves raw sockets, with a thread for each connection."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


def serve_connections(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """Call `serve` with each connection, until `stop_listening`. `serve` may raise OSError."""

    def run(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            serve(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=run, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def stop_listening(listener: socket.socket) -> None:
    """Accept no more connections."""
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
