"""Claims in the memory of one process, for a service that has one worker and no Redis."""

import time
from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from mmhash_service.claims.claims import Answer, ClaimsUnavailableError

# Results are at most 64 KiB, most of them some hundred bytes.
MAX_RECORDS = 65_536
MAX_RESULT_BYTES = 64 << 20

# Of a full table this many records are tried for one that may be dropped.
_TRIES = 100


@dataclass(slots=True)
class _Record:
    fence: int
    holder: bytes
    deadline_ms: int
    state: Literal["held", "done", "free"]
    result: bytes = b""


class MemoryClaims:
    """The claims of this process, the oldest first."""

    is_shared = False

    def __init__(self) -> None:
        self._records: OrderedDict[bytes, _Record] = OrderedDict()
        self._result_bytes = 0
        self._last_fence = 0

    async def acquire(self, name: bytes, holder: bytes, ttl_ms: int) -> Answer:
        """Hold a free claim."""
        now_ms = _now_ms()
        record = self._records.get(name)
        is_live = record is not None and record.deadline_ms > now_ms
        if record is not None and is_live and (record.state == "done" or record.holder != holder):
            return _seen(record, now_ms)
        fence = record.fence if record is not None and is_live else self._next_fence()
        self._put(name, _Record(fence, holder, now_ms + ttl_ms, "held"))
        return Answer("held", fence, ttl_ms)

    async def renew(self, name: bytes, holder: bytes, fence: int, ttl_ms: int) -> Answer:
        """Extend a lease."""
        record = self._own(name, holder, fence)
        if record is None or record.state != "held":
            return Answer("lost")
        record.deadline_ms = _now_ms() + ttl_ms
        return Answer("held", fence, ttl_ms)

    async def complete(
        self, name: bytes, holder: bytes, fence: int, result: bytes, keep_ms: int
    ) -> Answer:
        """Publish the result."""
        record = self._own(name, holder, fence)
        if record is None or record.state == "free":
            return Answer("lost")
        self._put(name, _Record(fence, holder, _now_ms() + keep_ms, "done", result))
        return Answer("done", fence, keep_ms, result)

    async def fail(self, name: bytes, holder: bytes, fence: int) -> Answer:
        """Free the claim, or withdraw its result."""
        if self._own(name, holder, fence) is None:
            return Answer("lost")
        self._put(name, _Record(fence, holder, 0, "free"))
        return Answer("free", fence)

    async def look(self, name: bytes) -> Answer:
        """Return the state without changing it."""
        record, now_ms = self._records.get(name), _now_ms()
        if record is None or record.deadline_ms <= now_ms:
            return Answer("free", record.fence if record else 0)
        return _seen(record, now_ms)

    def _next_fence(self) -> int:
        """Return the time in microseconds, or more: fences grow after a restart too.

        The monotonic clock begins again with each boot, and is another one on each host.
        """
        self._last_fence = max(self._last_fence + 1, time.time_ns() // 1000)
        return self._last_fence

    def _own(self, name: bytes, holder: bytes, fence: int) -> _Record | None:
        record = self._records.get(name)
        return record if record and (record.holder, record.fence) == (holder, fence) else None

    def _put(self, name: bytes, record: _Record) -> None:
        self._drop(name)
        while (
            len(self._records) >= MAX_RECORDS
            or self._result_bytes + len(record.result) > MAX_RESULT_BYTES
        ):
            self._evict()
        self._records[name] = record
        self._result_bytes += len(record.result)

    def _evict(self) -> None:
        """Drop the oldest record that is no running lease: a lost result is only a miss."""
        now_ms = _now_ms()
        for name, record in islice(self._records.items(), _TRIES):
            if record.state != "held" or record.deadline_ms <= now_ms:
                self._drop(name)
                return
        raise ClaimsUnavailableError("the table of claims is full of running leases")

    def _drop(self, name: bytes) -> None:
        record = self._records.pop(name, None)
        if record is not None:
            self._result_bytes -= len(record.result)


def _seen(record: _Record, now_ms: int) -> Answer:
    """Return the answer of a live record for a caller that does not hold it."""
    remaining_ms = record.deadline_ms - now_ms
    if record.state == "done":
        return Answer("done", record.fence, remaining_ms, record.result)
    return Answer("busy", record.fence, remaining_ms)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
