"""Shared memory in which a client passes large items over a Unix socket."""

from dataclasses import replace
from threading import Lock
from typing import Self

import msgspec

from mmhash.client.exchange import Request
from mmhash.errors import ServiceError, TransportError
from mmhash.transport import SharedPool, SharedTensor

# Room for three features of 20 MiB. When the pool is full, the client sends the bytes instead.
POOL_BYTES = 64 << 20

# The service cannot see this memory, or no longer can.
_NOT_FOUND = "urn:mmhash:problem:invalid-handle"
# A proxy between client and service forwards over another socket.
_NOT_LOCAL = "urn:mmhash:problem:in-place-off"


class SharedItems:
    """One client's pool, which threads share. The first large item allocates it."""

    def __init__(self, *, is_local: bool) -> None:
        self.is_used = is_local
        self._lock = Lock()
        self._pool: SharedPool | None = None

    def pool(self) -> SharedPool:
        """Return the pool."""
        with self._lock:
            if self._pool is None:
                self._pool = SharedPool(POOL_BYTES)
            return self._pool

    def note_failure(self, problem: str) -> bool:
        """Return True if the item failed only because it was in shared memory; stop using it."""
        if problem not in {_NOT_FOUND, _NOT_LOCAL}:
            return False
        self.is_used = False
        return True

    def close(self) -> None:
        """Free the memory."""
        with self._lock:
            self.is_used = False
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


class SharedCopy:
    """A context manager for sending an item in shared memory, into which `copy` copies the item.

    The manager suppresses the error of a service that cannot read the memory. The caller then sends
    the bytes.
    """

    def __init__(self, shared: SharedItems) -> None:
        self._shared = shared
        self._handle: object = None

    def copy(self, request: Request) -> Request | None:
        """Copy the item; return the request with a handle, or None if there is no room."""
        payload = request.payload
        if payload is None:
            return None
        try:
            handle = self._shared.pool().lease(payload.content).handle()
        except TransportError:
            return None
        self._handle = handle
        if payload.kind == "tensor":
            handle = handle | {"dtype": payload.dtype, "shape": list(payload.shape)}
        body = msgspec.json.encode({"items": [{"kind": payload.kind, "shm": handle}]})
        query = {name: request.query[name] for name in request.query.keys() - {"dtype", "shape"}}
        return replace(
            request,
            query=query,
            content_type="application/json",
            content=memoryview(body),
            payload=None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if self._handle is None:
            return False
        # Acknowledge on behalf of a service that did not read the item.
        SharedTensor.open(self._handle).close()
        return isinstance(error, ServiceError) and self._shared.note_failure(error.type)
