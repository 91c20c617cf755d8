"""A host that a service must not reach, or only by its allowed name: it counts connections."""

import socket
from contextlib import suppress
from threading import Thread


class VisitedHost:
    """A host on 127.0.0.1 that sends its answer once per connection."""

    def __init__(self, answer: bytes = b"") -> None:
        self.answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.visits = 0
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):  # the client may be gone
                connection.settimeout(60)
                self.visits += 1
                connection.recv(65536)
                connection.sendall(self.respond())

    def respond(self) -> bytes:
        """Return what it sends next."""
        return self.answer

    def close(self) -> None:
        """Close the listener, and wait for the last response."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
