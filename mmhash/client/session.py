"""The state of a client between calls: its limits, and its shared memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from mmhash.arguments import check_int, check_seconds
from mmhash.errors import ClosedError
from mmhash.transport import SharedPool, SharedTensor

# Enough for three features of 20 MiB; without room, a feature gets a segment of its own.
POOL_BYTES = 64 << 20

_MAX_TIMEOUT_S = 86_400


class Session:
    """The state of one client, for several threads.

    `in_place` is whether the service reads its shared memory, None until that is known;
    `has_shared` is whether it has done so.
    """

    def __init__(self, timeout: float, retries: int) -> None:
        self.timeout = float(check_seconds("timeout", timeout, _MAX_TIMEOUT_S))
        self.retries = check_int("retries", retries, 0)
        self.in_place: bool | None = None
        self.has_shared = False
        self._closed = False
        self._lock = Lock()
        self._pool: SharedPool | None = None

    @contextmanager
    def share(self, content: memoryview) -> Iterator[dict[str, Any]]:
        """Copy bytes to shared memory, and yield their handle."""
        handle = self._opened().lease(content).handle()
        try:
            yield handle
        finally:
            # Acknowledge instead of a service that did not read it.
            SharedTensor.open(handle).close()

    def _opened(self) -> SharedPool:
        with self._lock:
            if self._closed:
                raise ClosedError("this Client is closed")
            if self._pool is None:
                self._pool = SharedPool(POOL_BYTES)
            return self._pool

    def close(self) -> None:
        """Free the shared memory."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
