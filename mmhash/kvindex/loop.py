"""The thread of an index, which reads all its sockets in turn."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

from mmhash.errors import ClosedError, MMHashError
from mmhash.kvindex.subscriber import SLICE_S, Context
from mmhash.kvindex.table import MAX_HOLDERS

_REST_S = 0.0001
_POLL_MS = 50


class SocketLoop:
    """A thread for many sockets: `read` functions, tasks from other threads, and regular checks.

    The thread releases the interpreter lock after each millisecond of work.
    """

    def __init__(
        self, *, check: Callable[[float], None], interval_s: float, close: Callable[[], None]
    ) -> None:
        """Make a loop that calls `check` with the time at each interval, and `close` at its end."""
        self.context: Context = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, 4 * MAX_HOLDERS)  # a rank has up to four sockets
        self._check = check
        self._interval_s = interval_s
        self._close = close
        self._tasks: deque[Callable[[], None]] = deque()
        self._poller = zmq.Poller()
        self._by_socket: dict[Any, Callable[[], None]] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="mmhash-kvindex", daemon=True)

    def start(self) -> None:
        """Start the thread, which runs only once."""
        self.check_open()
        if self._thread.ident is not None:
            raise MMHashError("the index is started already")
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and close all sockets; safe to call twice."""
        self._is_stopping = True
        if self._thread.ident is not None:
            self._thread.join()
        if not self.context.closed:
            self.context.destroy(linger=0)

    def check_open(self) -> None:
        """Raise a ClosedError after `stop`."""
        if self._is_stopping:
            raise ClosedError("the index is stopped")

    def submit(self, task: Callable[[], None]) -> None:
        """Call `task` in the thread."""
        self._tasks.append(task)

    def watch(self, socket: Any, read: Callable[[], None]) -> None:
        """Call `read` in the thread whenever a socket has messages."""
        self._poller.register(socket, zmq.POLLIN)
        self._by_socket[socket] = read

    def unwatch(self, socket: Any) -> None:
        """Undo `watch`."""
        if self._by_socket.pop(socket, None) is not None:
            self._poller.unregister(socket)

    def _run(self) -> None:
        next_check = 0.0
        try:
            while not self._is_stopping:
                while self._tasks:
                    self._tasks.popleft()()
                self._read_ready()
                now = time.monotonic()
                if now >= next_check:
                    next_check = now + self._interval_s
                    self._check(now)
        finally:
            self._close()

    def _read_ready(self) -> None:
        """Read part of what each socket has."""
        start = time.monotonic()
        if not self._by_socket:  # poll() would return at once
            time.sleep(_POLL_MS / 1000)
            return
        for socket, _ in self._poller.poll(_POLL_MS):
            read = self._by_socket.get(socket)  # an earlier read may have closed this socket
            if read is None:
                continue
            read()
            if time.monotonic() - start > SLICE_S:
                # Releasing the lock is not enough: a waiting thread needs time to wake up.
                time.sleep(_REST_S)
                start = time.monotonic()
