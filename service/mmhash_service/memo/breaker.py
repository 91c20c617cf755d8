"""Circuit breaker around a store: if it is down, slow or full, lookups miss within 50 ms."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from mmhash_service.runtime import metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

# The longest wait for a lookup. A Redis round trip takes 0.12 ms, an SQLite lookup 0.07 ms.
TIMEOUT_S = 0.05

# The maximum number of concurrent operations. This many keep the event loop busy for 7 ms: with
# more, lookups would exceed the time-out because of this process, not the store.
MAX_CONCURRENT = 64

# Consecutive failures that open the circuit. On a busy machine, single lookups may time out.
MAX_FAILURES = 3

# While the circuit is open, the store is probed at this interval, with a longer time-out.
RETRY_S = 0.5
PROBE_S = 1.0


class Store(Protocol):
    """A key-value store outside this process. Any method may raise any exception."""

    async def get(self, name: bytes) -> bytes | None:
        """Return the value, or None."""

    async def put(self, name: bytes, value: bytes) -> None:
        """Store the value."""

    async def drop(self) -> None:
        """Close idle connections: their replies may be out of sync."""

    async def close(self) -> None:
        """Close all connections; the next operation reopens them."""


class BadEntryError(Exception):
    """The store returned a value that was not sealed for its name."""


class StoreUnavailableError(Exception):
    """The store is not used for this operation: it fails, times out or has too many."""


class Breaker:
    """A store with time-outs, and without any access while it fails."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running = 0
        self._failures = 0
        self._puts: set[asyncio.Task[None]] = set()
        # Probes the store while the circuit is open.
        self._recovery: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect now, so that no request waits for it."""
        try:
            await self._probe()
        except Exception as error:  # noqa: BLE001  (any failure is only a miss)
            metrics.MEMO_FAILURES.labels("probe").inc()
            self._open_circuit(error)

    async def get(self, name: bytes, open_sealed: Callable[[bytes], T | None]) -> T | None:
        """Return the opened value, or None if the store has none, fails or times out.

        A value that `open_sealed` rejects counts as a failure: it was modified, or is the reply to
        another command.
        """
        try:
            return await self.call(lambda: self._get_and_open(name, open_sealed), "get", TIMEOUT_S)
        except StoreUnavailableError:
            return None

    async def call(
        self,
        operation: Callable[[], Awaitable[T]],
        label: str,
        timeout_s: float,
    ) -> T:
        """Return the result of an operation on the store, or raise StoreUnavailableError."""
        if self._recovery is not None:
            raise StoreUnavailableError("the store failed, and is not used until it recovers")
        if self._running == MAX_CONCURRENT:
            metrics.MEMO_FAILURES.labels(label).inc()
            raise StoreUnavailableError("too many operations are running")
        self._running += 1
        try:
            async with asyncio.timeout(timeout_s):
                result = await operation()
        except Exception as error:
            metrics.MEMO_FAILURES.labels(label).inc()
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                self._open_circuit(error)
            raise StoreUnavailableError(repr(error)) from error
        else:
            self._failures = 0
            return result
        finally:
            self._running -= 1

    def put(self, name: bytes, value: bytes) -> None:
        """Store the value in the background; drop it if too many writes are pending."""
        if self._recovery is not None:
            return
        if len(self._puts) == MAX_CONCURRENT:
            metrics.MEMO_FAILURES.labels("put").inc()
            return
        task = asyncio.create_task(self._put(name, value))
        self._puts.add(task)
        task.add_done_callback(self._puts.discard)

    async def close(self) -> None:
        """Wait for pending writes, then close the store."""
        if self._recovery is not None:
            self._recovery.cancel()
        if self._puts:
            await asyncio.wait(self._puts)
        await self._close_store()

    async def _get_and_open(
        self, name: bytes, open_sealed: Callable[[bytes], T | None]
    ) -> T | None:
        value = await self._store.get(name)
        if value is None:
            return None
        opened = open_sealed(value)
        if opened is None:
            await self._store.drop()
            raise BadEntryError("the value was not sealed for its name")
        return opened

    async def _put(self, name: bytes, value: bytes) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._store.put(name, value)
        except Exception as error:  # noqa: BLE001  (as above)
            # A full or read-only store still answers lookups: the circuit stays closed.
            metrics.MEMO_FAILURES.labels("put").inc()
            logger.debug("the memo store did not store an entry: %r", error)

    def _open_circuit(self, error: Exception) -> None:
        if self._recovery is None:
            logger.warning("the memo store fails and is not used until it recovers: %r", error)
            self._recovery = asyncio.create_task(self._recover())

    async def _recover(self) -> None:
        """Probe the store until it answers, then close the circuit."""
        while True:
            # Start from new connections: a cluster or sentinel client caches addresses of servers.
            await self._close_store()
            await asyncio.sleep(RETRY_S)
            try:
                await self._probe()
            except Exception as error:  # noqa: BLE001  (as above)
                metrics.MEMO_FAILURES.labels("probe").inc()
                logger.debug("the memo store still fails: %r", error)
            else:
                break
        logger.info("the memo store has recovered")
        self._recovery = None
        self._failures = 0

    async def _close_store(self) -> None:
        try:
            async with asyncio.timeout(PROBE_S):
                await self._store.close()
        except Exception as error:  # noqa: BLE001  (as above)
            logger.debug("the memo store cannot be closed: %r", error)

    async def _probe(self) -> None:
        async with asyncio.timeout(PROBE_S):
            await self._store.get(b"probe")
