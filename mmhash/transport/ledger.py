"""The producer's side of a ledger: grants slices of a pool, and takes them back."""

import threading
import time
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from mmhash.arguments import check_int, check_seconds
from mmhash.errors import InputValueError, TransportError
from mmhash.transport.handles import Grant
from mmhash.transport.layout import (
    ALIGNMENT,
    HEADER,
    MAGIC,
    MAX_CONSUMERS,
    MAX_SLOTS,
    MEMORY_SIZE,
    SLOTS_OFFSET,
    UUID_SIZE,
    Layout,
    slot_size,
)
from mmhash.transport.segments import Segment, map_shared


class _ActiveLease(NamedTuple):
    slot: int
    generation: int
    offset: int
    size: int  # bytes of its slice with padding
    since: float


class Ledger:
    """The leases of a pool, as its producer keeps them.

    Free slots and free bytes follow from the active leases.
    """

    def __init__(
        self,
        nbytes: int,
        memory: bytes = bytes(MEMORY_SIZE),
        *,
        device: bytes = bytes(UUID_SIZE),
        consumers: int = 1,
        timeout_s: float = 60.0,
        slots: int = MAX_SLOTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # A lease must time out: one that nobody ends would fill the pool.
        self._timeout_s = check_seconds("timeout_s", timeout_s)
        if not 0 < check_int("consumers", consumers) <= MAX_CONSUMERS:
            raise InputValueError(
                f"a pool must have 1 to {MAX_CONSUMERS} consumers, not {consumers}"
            )
        self._segment = Segment(SLOTS_OFFSET + slots * slot_size(consumers))
        header = HEADER.pack(MAGIC, slots, consumers, nbytes, memory, device)
        self._segment.fill(memoryview(header))
        self.mapping = map_shared(self._segment.name)
        self.layout = Layout.parse(self._segment.name, self.mapping)
        self._words = memoryview(self.mapping).cast("I")
        self._longs = memoryview(self.mapping).cast("Q")
        self._clock = clock
        self._lock = threading.Lock()
        self._generation = 0
        self._active: dict[int, _ActiveLease] = {}

    def grant(self, nbytes: int) -> tuple[Grant, int]:
        """Return a lease and the offset of its slice; without room, raise a TransportError.

        Only withdraw() can end the lease before filled().
        """
        size = (max(nbytes, 1) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        with self._lock:
            self._collect()
            gap = self._find_gap(size)
            if gap is None:
                raise TransportError(
                    f"the pool of {self.layout.nbytes} bytes has no slice of {nbytes}: give it more"
                    " with nbytes=…, or close features that were read"
                )
            slot, offset = gap
            self._generation = self._generation % 0xFFFFFFFF + 1
            lease = _ActiveLease(slot, self._generation, offset, size, self._clock())
            self._active[slot] = lease
            self._write_slot(lease, nbytes)
            return Grant(self.layout.name, lease.slot, lease.generation), lease.offset

    def filled(self, grant: Grant) -> None:
        """Record that the copy is done, if no device will do so."""
        self._words[self.layout.ready_offset(grant.slot) // 4] = grant.generation

    def withdraw(self, grant: Grant) -> None:
        """End a lease whose copy was interrupted."""
        with self._lock:
            self._end(self._active[grant.slot])

    def leases(self) -> int:
        """Return the number of leases that have not ended."""
        with self._lock:
            self._collect()
            return len(self._active)

    def close(self) -> None:
        """End all leases."""
        with self._lock:
            for lease in list(self._active.values()):
                self._end(lease)
            self._segment.close()

    def _find_gap(self, size: int) -> tuple[int, int] | None:
        """Return a free slot and the offset of the first gap that is large enough."""
        slot = next((slot for slot in range(self.layout.slots) if slot not in self._active), None)
        if slot is None:
            return None
        start = 0
        for lease in sorted(self._active.values(), key=attrgetter("offset")):
            if lease.offset - start >= size:
                break
            start = max(start, lease.offset + lease.size)
        return (slot, start) if start + size <= self.layout.nbytes else None

    def _write_slot(self, lease: _ActiveLease, nbytes: int) -> None:
        """Write a lease for its consumers; the generation comes last and makes it valid."""
        offset = self.layout.slot_offset(lease.slot)
        self._longs[offset // 8 + 1] = lease.offset
        self._longs[offset // 8 + 2] = nbytes
        self._words[offset // 4 + 1] = 0
        self._words[offset // 4] = lease.generation

    def _collect(self) -> None:
        """End the leases that all consumers have acknowledged or that have timed out."""
        oldest = self._clock() - self._timeout_s
        for lease in list(self._active.values()):
            first = self.layout.slot_offset(lease.slot) // 4
            if self._words[first + 1] != lease.generation:
                continue  # a copy still in progress would overwrite the slice of the next lease
            words = self._words[first + 6 : first + 6 + self.layout.consumers]
            if lease.since < oldest or all(word == lease.generation for word in words):
                self._end(lease)

    def _end(self, lease: _ActiveLease) -> None:
        self._words[self.layout.slot_offset(lease.slot) // 4] = 0
        del self._active[lease.slot]
