"""A circuit breaker for the store: while the store is down or slow, requests do without it."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from mmhash_service.memo.redis import RedisStore
from mmhash_service.telemetry import metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A request waits this many seconds for a lookup.
TIMEOUT_S = 0.05

# More lookups at once would time out because of this process, not because of the store. More
# pending writes would take unbounded memory.
MAX_CONCURRENT = 64

# This many failures in a row open the circuit. A single lookup may time out on a busy machine.
MAX_FAILURES = 3

# While the circuit is open, the store is probed at this interval. A probe may have to connect, so
# its time-out is longer.
RETRY_S = 0.5
PROBE_S = 1.0


class Breaker:
    """A store with time-outs. After a few failures only probes reach it, until one succeeds."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._lookups = 0
        self._failures = 0
        self._puts: set[asyncio.Task[Any]] = set()
        # Set while the circuit is open: the task that probes the store.
        self._recovery: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, before a request needs the store."""
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
        """Store the value in the background, unless too many writes are pending."""
        if self._recovery is None and len(self._puts) < MAX_CONCURRENT:
            # A failed write does not open the circuit: a full store still answers lookups.
            task = asyncio.create_task(self._try("put", self._store.put(name, value), TIMEOUT_S))
            self._puts.add(task)
            task.add_done_callback(self._end_put)

    async def close(self) -> None:
        """Finish the pending writes, then close the store."""
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
        """Close the circuit if the store answers, or open it."""
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
            logger.warning("the memo store fails and stays unused until it recovers: %r", error)
            self._recovery = asyncio.create_task(self._recover())

    async def _recover(self) -> None:
        while self._recovery is not None:
            await asyncio.sleep(RETRY_S)
            await self._probe()
