"""A web host from which a service under test fetches URLs."""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

Answer = bytes | Callable[[socket.socket], None]


class Origin:
    """A host that answers each path with the bytes, or the function, that a test gives it."""

    def __init__(
        self, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None, *, port: int = 0
    ) -> None:
        self._tls = tls
        self._listener = socket.create_server((address, port))
        self.port = self._listener.getsockname()[1]
        self.answers: dict[str, Answer] = {}
        # The heads of the requests, and the number of connections.
        self.heads: list[str] = []
        self.connections = 0
        self._open: list[socket.socket] = []
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()

    @staticmethod
    def ok(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
        """Return a successful response."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
        return "\r\n".join(lines).encode("latin-1") + body

    def close(self) -> None:
        """Close all connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                self._threads.append(Thread(target=self._converse, args=(connection,)))
                self._threads[-1].start()

    def _converse(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                while head := self._read_head(connection):
                    self.heads.append(head)
                    answer = self.answers[head.split(" ", 2)[1]]
                    if callable(answer):
                        answer(connection)
                        return
                    connection.sendall(answer)

    @staticmethod
    def _read_head(connection: socket.socket) -> str:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (piece := connection.recv(65536)):
                return ""
            head += piece
        return head.decode("latin-1")
