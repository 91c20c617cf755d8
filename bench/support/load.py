"""HTTP load from separate processes of this machine, which use as little CPU as possible.

`load` and `probe` start such a process and return its figures.
"""

import http.client
import itertools
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MIB = 1 << 20

# The chunk size of httpx and aiohttp.
_CHUNK = 64 << 10

Address = int | str
"""A port of this machine, or the path of a Unix socket."""


def load(
    address: Address,
    path: str,
    nbytes: int,
    connections: int,
    seconds: float,
    *,
    chunked: bool = False,
    bodies: str = "",
    media_type: str = "application/octet-stream",
) -> dict[str, Any]:
    """Send bodies of one size on several connections. Return the count, seconds and percentiles.

    The file `bodies` has bodies of this size, one after another. They are sent in turn.
    """
    options = (address, path, nbytes, connections, seconds, chunked, bodies, media_type)
    return _in_a_process("load", *options)  # type: ignore[no-any-return]


def probe(port: int, seconds: float, path: str = "/health") -> list[float]:
    """Request `path` every 5 ms. Return how many seconds each response took."""
    return _in_a_process("probe", port, seconds, path)  # type: ignore[no-any-return]


def _in_a_process(task: str, *arguments: Any) -> Any:
    command = [sys.executable, "-m", "bench.support.load", task, json.dumps(arguments)]
    return json.loads(subprocess.check_output(command))


class _Connection:
    """A keep-alive connection that sends a body, waits for the response, and starts again."""

    def __init__(
        self, address: Address, head: bytes, file: int, nbytes: int, offsets: Iterator[int]
    ) -> None:
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(("127.0.0.1", address))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._head, self._file, self._nbytes, self._offsets = head, file, nbytes, offsets
        self.begin()

    def begin(self) -> None:
        self.started = time.perf_counter()
        self._sent = -len(self._head)
        self._offset = next(self._offsets)
        self._response = b""

    def send(self) -> bool:
        """Send as much as the socket takes. Return True if everything is sent."""
        try:
            if self._sent < 0:
                self._sent += self.socket.send(self._head[self._sent :], socket.MSG_MORE)
            while 0 <= self._sent < self._nbytes:
                # Send from the page cache, so that the load takes little CPU.
                count = min(MIB, self._nbytes - self._sent)
                self._sent += os.sendfile(
                    self.socket.fileno(), self._file, self._offset + self._sent, count
                )
        except BlockingIOError:
            pass
        return self._sent == self._nbytes

    def receive(self) -> bool:
        """Read what the socket has. Return True if the response is complete."""
        self._response += self.socket.recv(65536)
        head, end, body = self._response.partition(b"\r\n\r\n")
        if not end:
            return False
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return False
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(self._response.decode())
        return True


def _generate(  # noqa: PLR0917  (the arguments of `load`)
    address: Address,
    path: str,
    nbytes: int,
    connections: int,
    seconds: float,
    chunked: bool,
    bodies: str,
    media_type: str,
) -> dict[str, Any]:
    """Do the work of `load`."""
    body = Path(bodies).read_bytes() if bodies else os.urandom(nbytes)
    framing = f"Content-Length: {nbytes}"
    if chunked:
        framing = "Transfer-Encoding: chunked"
        chunks = [body[start : start + _CHUNK] for start in range(0, nbytes, _CHUNK)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""])
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {media_type}\r\n{framing}\r\n\r\n"
    ).encode()
    file = os.memfd_create("body")
    os.write(file, body)
    if chunked:
        nbytes = len(body)
    offsets = itertools.cycle(range(0, len(body), nbytes))
    poll = select.epoll()
    by_file = {}
    for _ in range(connections):
        connection = _Connection(address, head, file, nbytes, offsets)
        by_file[connection.socket.fileno()] = connection
        poll.register(connection.socket.fileno(), select.EPOLLOUT)
    times: list[float] = []
    start = last = time.perf_counter()
    running = connections
    while running:
        for number, _ in poll.poll():
            connection = by_file[number]
            if not connection.send():
                continue
            poll.modify(number, select.EPOLLIN)
            try:
                if not connection.receive():
                    continue
            except BlockingIOError:
                continue
            last = time.perf_counter()
            times.append(last - connection.started)
            if last >= start + seconds:
                running -= 1
                poll.unregister(number)
                continue
            connection.begin()
            poll.modify(number, select.EPOLLIN if connection.send() else select.EPOLLOUT)
    return {"requests": len(times), "seconds": last - start, **percentiles(times)}


def percentiles(times: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    return {"p50": statistics.median(times), "p99": sorted(times)[int(0.99 * len(times))]}


def _request_health(port: int, seconds: float, path: str) -> list[float]:
    """Do the work of `probe`."""
    times = []
    end = time.perf_counter() + seconds
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while (start := time.perf_counter()) < end:
        connection.request("GET", path)
        connection.getresponse().read()
        times.append(time.perf_counter() - start)
        time.sleep(0.005)
    connection.close()
    return times


if __name__ == "__main__":
    tasks: dict[str, Callable[..., Any]] = {"load": _generate, "probe": _request_health}
    print(json.dumps(tasks[sys.argv[1]](*json.loads(sys.argv[2]))))
