"""What a client keeps from call to call: its limits, and what it has in shared memory."""

import os
import secrets
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from mmhash.errors import MMHashError
from mmhash.transport import SharedPool, SharedTensor

# Room for three features of 20 MiB; what finds none, since many calls share it, lies beside it.
POOL_BYTES = 64 << 20


class Session:
    """One client's. `in_place` is whether the service reads its shared memory, once that is known.

    It may be used by several threads at once. A forked child begins anew: with its own nonce and
    its own pool, and its parent's stays the parent's.
    """

    def __init__(self, *, timeout: float, retries: int) -> None:
        self.timeout = timeout
        self.retries = retries
        self.in_place: bool | None = None
        self._closed = False
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._lock = Lock()
        self._nonce = secrets.token_bytes(32)
        self._shared: tuple[SharedPool, SharedTensor] | None = None

    def after_fork(self) -> None:
        """In a child: forget the parent's lock, which may be held, its nonce and its pool."""
        _abandoned.append(self._shared)
        self._begin()

    def proof(self) -> dict[str, Any]:
        """What shows the service that this process shares its host; the same for all calls."""
        shm = self._opened()[1].handle()
        return {"nonce": self._nonce.hex(), "shm": shm}

    @contextmanager
    def share(self, content: memoryview) -> Iterator[dict[str, Any]]:
        """Bytes copied to where the service can read them, by their handle, until it is done."""
        owner = os.getpid()
        handle = self._opened()[0].lease(content).handle()
        try:
            yield handle
        finally:
            # In the place of a service that never came to it. A child that was forked meanwhile
            # does not end its parent's lease.
            if os.getpid() == owner:
                SharedTensor.open(handle).close()

    def _opened(self) -> tuple[SharedPool, SharedTensor]:
        with self._lock:
            if self._closed:
                raise MMHashError("this Client is closed")
            if self._shared is None:
                self._shared = SharedPool(POOL_BYTES), SharedTensor.create(self._nonce)
            return self._shared

    def close(self) -> None:
        """Take back what lies in shared memory."""
        with self._lock:
            self._closed = True
            shared, self._shared = self._shared, None
        for owned in shared or ():
            owned.close()


_all: weakref.WeakSet[Session] = weakref.WeakSet()
# A parent's shared memory, as a child sees it: closing it is the parent's.
_abandoned: list[Any] = []


def _after_fork() -> None:
    for session in list(_all):
        session.after_fork()


os.register_at_fork(after_in_child=_after_fork)
