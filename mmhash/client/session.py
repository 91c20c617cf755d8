"""What a client keeps from call to call: whom it speaks for, and what it has in shared memory."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from mmhash.transport import SharedPool, SharedTensor

# Room for three features of 20 MiB; what finds none, since many calls share it, lies beside it.
POOL_BYTES = 64 << 20


class Session:
    """One client's. `in_place` is whether the service reads its shared memory, once that is known.

    It may be used by several threads at once.
    """

    def __init__(
        self, *, api_key: str | None, tenant: str | None, timeout: float, retries: int
    ) -> None:
        self.timeout = timeout
        self.retries = retries
        self.headers = {}
        if api_key is not None:
            self.headers[b"Authorization"] = f"Bearer {api_key}".encode()
        if tenant is not None:
            self.headers[b"X-Mmhash-Tenant"] = tenant.encode()
        self.in_place: bool | None = None
        self._lock = Lock()
        self._nonce = secrets.token_bytes(32)
        self._shared: tuple[SharedPool, SharedTensor] | None = None

    def proof(self) -> dict[str, Any]:
        """What shows the service that this process shares its host; the same for all calls."""
        return {"nonce": self._nonce.hex(), "shm": self._opened()[1].handle()}

    @contextmanager
    def laid_down(self, content: memoryview) -> Iterator[dict[str, Any]]:
        """Bytes copied to where the service can read them, by their handle, until it is done."""
        handle = self._opened()[0].lease(content).handle()
        try:
            yield handle
        finally:
            # In the place of a service that never came to it.
            SharedTensor.open(handle).close()

    def _opened(self) -> tuple[SharedPool, SharedTensor]:
        with self._lock:
            if self._shared is None:
                self._shared = SharedPool(POOL_BYTES), SharedTensor.create(self._nonce)
            return self._shared

    def close(self) -> None:
        """Take back what lies in shared memory."""
        if self._shared is not None:
            for owned in self._shared:
                owned.close()
