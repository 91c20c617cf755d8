"""The state of a client between calls: its limits, and its shared memory."""

import secrets
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

    `in_place` is whether the service reads its shared memory, None until that is known.
    """

    def __init__(self, timeout: float, retries: int) -> None:
        self.timeout = float(check_seconds("timeout", timeout, _MAX_TIMEOUT_S))
        self.retries = check_int("retries", retries, 0)
        self.in_place: bool | None = None
        self._closed = False
        self._lock = Lock()
        self._nonce = secrets.token_bytes(32)
        self._shared: tuple[SharedPool, SharedTensor] | None = None

    def proof(self) -> dict[str, Any]:
        """Return the proof that this process runs on the service's host; the same for all calls."""
        shm = self._opened()[1].handle()
        return {"nonce": self._nonce.hex(), "shm": shm}

    @contextmanager
    def share(self, content: memoryview) -> Iterator[dict[str, Any]]:
        """Copy bytes to shared memory, and yield their handle."""
        handle = self._opened()[0].lease(content).handle()
        try:
            yield handle
        finally:
            # Acknowledge instead of a service that did not read it.
            SharedTensor.open(handle).close()

    def _opened(self) -> tuple[SharedPool, SharedTensor]:
        with self._lock:
            if self._closed:
                raise ClosedError("this Client is closed")
            if self._shared is None:
                self._shared = SharedPool(POOL_BYTES), SharedTensor.create(self._nonce)
            return self._shared

    def close(self) -> None:
        """Free the shared memory."""
        with self._lock:
            self._closed = True
            shared, self._shared = self._shared, None
        for owned in shared or ():
            owned.close()
