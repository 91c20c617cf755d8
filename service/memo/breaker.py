"""A store that may be down, slow or full: that costs misses, and never more than a moment."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from mmhash_service.runtime import metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How long a call waits for the store: a trip to Redis takes 0.12 ms, one to an SQLite file 0.07 ms.
TIMEOUT_S = 0.05

# More than these at once would be too slow by our own doing: they take the event loop 7 ms.
MAX_AT_ONCE = 64

# On a busy machine a lookup is late now and then: so many in a row are the store's own fault.
TOLERATED = 3

# A store that is left alone is tried again after so long, and may then take its time.
RETRY_S = 0.5
PROBE_S = 1.0


# Tasks of the process that this one was forked from: never run here, and not collected, which would
# be logged.
_of_parent: list[object] = []


class Store(Protocol):
    """Names and values, kept outside of this process; it may fail with any exception."""

    async def get(self, name: bytes) -> bytes | None:
        """The value, if there is one."""

    async def put(self, name: bytes, value: bytes) -> None:
        """Keep the value."""

    async def drop(self) -> None:
        """Let go of connections whose replies cannot be trusted."""

    async def close(self) -> None:
        """Let go of what is open; another operation opens it again."""

    def abandon(self) -> None:
        """Forget what is open, in a process that was forked: the parent uses it."""


class BadEntryError(Exception):
    """The store answered with a value that nobody sealed for that name."""


class Breaker:
    """A store, asked in a bounded time, and left alone while it fails."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._getting = 0
        self._failed = 0
        self._putting: set[asyncio.Task[None]] = set()
        self._resting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, so that no call waits for that."""
        try:
            await self._probe()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is not the calls' concern)
            metrics.MEMO_FAILURES.labels("get").inc()
            self._open_circuit(error)

    async def get(self, name: bytes, open_sealed: Callable[[bytes], T | None]) -> T | None:
        """What `open_sealed` makes of the value, if the store has one and says so in time.

        A value that cannot be opened is a failure: it was changed, or is the reply to another
        command.
        """
        if self._resting is not None:
            return None
        if self._getting == MAX_AT_ONCE:
            metrics.MEMO_FAILURES.labels("get").inc()
            return None
        self._getting += 1
        try:
            async with asyncio.timeout(TIMEOUT_S):
                opened = await self._open(name, open_sealed)
        except Exception as error:  # noqa: BLE001  (as above)
            metrics.MEMO_FAILURES.labels("get").inc()
            self._failed += 1
            if self._failed >= TOLERATED:
                self._open_circuit(error)
            return None
        else:
            self._failed = 0
            return opened
        finally:
            self._getting -= 1

    def put(self, name: bytes, value: bytes) -> None:
        """Keep the value some time soon, unless too much is to be kept already."""
        if self._resting is not None:
            return
        if len(self._putting) == MAX_AT_ONCE:
            metrics.MEMO_FAILURES.labels("put").inc()
            return
        task = asyncio.create_task(self._put(name, value))
        self._putting.add(task)
        task.add_done_callback(self._putting.discard)

    async def close(self) -> None:
        """Finish what is being kept, and let go."""
        if self._resting is not None:
            self._resting.cancel()
        if self._putting:
            await asyncio.wait(self._putting)
        await self._close_store()

    def abandon(self) -> None:
        """Begin anew, in a process that was forked: tasks and connections are the parent's."""
        _of_parent.extend((*self._putting, self._resting))
        self._getting = self._failed = 0
        self._putting, self._resting = set(), None
        self._store.abandon()

    async def _open(self, name: bytes, open_sealed: Callable[[bytes], T | None]) -> T | None:
        value = await self._store.get(name)
        if value is None:
            return None
        opened = open_sealed(value)
        if opened is None:
            await self._store.drop()
            raise BadEntryError("a value that was not sealed for its name")
        return opened

    async def _put(self, name: bytes, value: bytes) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._store.put(name, value)
        except Exception as error:  # noqa: BLE001  (as above)
            # A store that is full, or only to be read, still answers: it is not left alone.
            metrics.MEMO_FAILURES.labels("put").inc()
            logger.debug("the memo's store did not keep an entry: %r", error)

    def _open_circuit(self, error: Exception) -> None:
        if self._resting is None:
            logger.warning("the memo's store fails and is left alone: %r", error)
            self._resting = asyncio.create_task(self._rest())

    async def _rest(self) -> None:
        """Wait until the store answers; no call waits with us."""
        while True:
            # What it said of itself, or of other servers, may be what is wrong.
            await self._close_store()
            await asyncio.sleep(RETRY_S)
            try:
                await self._probe()
            except Exception as error:  # noqa: BLE001  (as above)
                logger.debug("the memo's store still fails: %r", error)
            else:
                break
        logger.info("the memo's store answers again")
        self._resting = None
        self._failed = 0

    async def _close_store(self) -> None:
        try:
            async with asyncio.timeout(PROBE_S):
                await self._store.close()
        except Exception as error:  # noqa: BLE001  (as above)
            logger.debug("the memo's store cannot be closed: %r", error)

    async def _probe(self) -> None:
        async with asyncio.timeout(PROBE_S):
            await self._store.get(b"probe")
