"""A circuit breaker for a store: while it is down, slow or full, requests go on without it."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from mmhash_service.memo.stores import Store
from mmhash_service.telemetry import metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

# The longest that a request waits for a lookup.
TIMEOUT_S = 0.05

# With more concurrent lookups, this process would cause time-outs itself. More pending writes would
# take unbounded memory.
MAX_CONCURRENT = 64

# This many consecutive failures open the circuit. On a busy machine, single lookups may time out.
MAX_FAILURES = 3

# While the circuit is open, the store is probed at this interval, with a longer time-out.
RETRY_S = 0.5
PROBE_S = 1.0


class Breaker:
    """A store with time-outs, which is left alone while it fails."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lookups = 0
        self._failures = 0
        self._puts: set[asyncio.Task[Any]] = set()
        # Probes the store while the circuit is open.
        self._recovery: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect now, before any request needs the store."""
        await self._probe()

    async def get(self, name: bytes) -> bytes | None:
        """Return the value, or None if the store has none, fails or takes too long."""
        if self._recovery is not None or self._lookups == MAX_CONCURRENT:
            return None
        self._lookups += 1
        try:
            return await self._try("get", self._store.get(name), TIMEOUT_S)
        except Exception as error:  # noqa: BLE001  (any failure is only a miss)
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                self._open_circuit(error)
            return None
        finally:
            self._lookups -= 1

    def put(self, name: bytes, value: bytes) -> None:
        """Store the value in the background; drop it if too many writes are pending."""
        if self._recovery is None and len(self._puts) < MAX_CONCURRENT:
            # A full store still answers lookups: the circuit stays closed.
            task = asyncio.create_task(self._try("put", self._store.put(name, value), TIMEOUT_S))
            self._puts.add(task)
            task.add_done_callback(self._end_put)

    async def close(self) -> None:
        """Wait for pending writes, then close the store."""
        if self._recovery is not None:
            self._recovery.cancel()
        if self._puts:
            await asyncio.wait(self._puts)
        try:
            async with asyncio.timeout(PROBE_S):
                await self._store.close()
        except Exception as error:  # noqa: BLE001  (as above)
            logger.debug("the memo store cannot be closed: %r", error)

    async def _try(self, label: str, operation: Coroutine[Any, Any, T], timeout_s: float) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                result = await operation
        except Exception:
            metrics.MEMO_FAILURES.labels(label).inc()
            raise
        if label != "put":
            self._failures = 0
        return result

    def _end_put(self, task: asyncio.Task[Any]) -> None:
        self._puts.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("the memo store did not store an entry: %r", error)

    async def _probe(self) -> None:
        """Close the circuit if the store answers; otherwise open it."""
        try:
            await self._try("probe", self._store.get(b"probe"), PROBE_S)
        except Exception as error:  # noqa: BLE001  (as above)
            self._open_circuit(error)
        else:
            if self._recovery is not None:
                logger.info("the memo store has recovered")
            self._recovery = None

    def _open_circuit(self, error: Exception) -> None:
        if self._recovery is None:
            logger.warning("the memo store fails and is not used until it recovers: %r", error)
            self._recovery = asyncio.create_task(self._recover())

    async def _recover(self) -> None:
        while self._recovery is not None:
            await asyncio.sleep(RETRY_S)
            await self._probe()
