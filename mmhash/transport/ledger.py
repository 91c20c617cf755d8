"""The producer's side of a ledger: it grants slices of a pool, and takes them back."""

import threading
import time
import weakref
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from mmhash.errors import InputValueError
from mmhash.transport.handles import Grant
from mmhash.transport.layout import (
    ALIGNMENT,
    HEADER,
    MAGIC,
    MAX_CONSUMERS,
    MAX_SLOTS,
    MEMORY_SIZE,
    SLOTS_OFFSET,
    Layout,
    slot_size,
)
from mmhash.transport.segments import Segment, map_shared


class Claim:
    """A call that takes a lease. If the call is interrupted, nothing else holds the lease."""


_NO_CLAIM = Claim()  # of a lease that ends only by acknowledgement or time


class _ActiveLease(NamedTuple):
    slot: int
    generation: int
    offset: int
    size: int  # of its slice, with padding; 0 for a lease of an overflow segment
    since: float
    overflow: Segment | None
    claim: Callable[[], Claim | None]


class Ledger:
    """The producer's side: grants slices, and takes them back.

    An exception may be raised between any two lines, for example by a signal handler. Therefore
    `_active` is the only state: a lease starts when it is added there and ends when it is removed,
    each in one step, and the free slots and bytes are computed from it.
    """

    def __init__(
        self,
        nbytes: int,
        memory: bytes = bytes(MEMORY_SIZE),
        *,
        consumers: int = 1,
        timeout: float = 60.0,
        slots: int = MAX_SLOTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 < consumers <= MAX_CONSUMERS:
            raise InputValueError(f"a pool has 1 to {MAX_CONSUMERS} consumers, not {consumers}")
        self._segment = Segment(SLOTS_OFFSET + slots * slot_size(consumers))
        header = HEADER.pack(MAGIC, slots, consumers, nbytes, memory)
        self._segment.fill(memoryview(header))
        self.mapping = map_shared(self._segment.name)
        self.layout = Layout.parse(self._segment.name, self.mapping)
        self._words = memoryview(self.mapping).cast("I")
        self._longs = memoryview(self.mapping).cast("Q")
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.RLock()  # a signal handler may lease while its thread does
        self._generation = 0
        self._active: dict[int, _ActiveLease] = {}

    def grant(
        self, nbytes: int, *, overflow: Segment | None = None, claim: Claim = _NO_CLAIM
    ) -> tuple[Grant, int] | None:
        """Return a lease and the offset of its slice, or None if there is no room.

        Until filled() or queued(), the lease ends with `claim`. With an `overflow` segment, which
        has the bytes already, the lease takes only a slot, and closes the segment when it ends.
        """
        size = 0 if overflow else (max(nbytes, 1) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        with self._lock:
            lease = self._reserve(size, overflow, claim)
            if lease is None:
                self._collect()
                lease = self._reserve(size, overflow, claim)
            if lease is None:
                return None
            self._write_slot(lease, nbytes)
            return Grant(self.layout.name, lease.slot, lease.generation), lease.offset

    def filled(self, grant: Grant) -> None:
        """Record that the copy is done, if no device does so after it."""
        self._words[self.layout.ready_offset(grant.slot) // 4] = grant.generation

    def queued(self, claim: Claim) -> None:
        """Record that the copy may be queued on a device, which will write the ready word."""
        with self._lock:
            for lease in self._leases_of(claim):
                self._active[lease.slot] = lease._replace(claim=lambda: _NO_CLAIM)

    def withdraw(self, claim: Claim) -> None:
        """End the lease of an interrupted call, if it has one."""
        with self._lock:
            for lease in self._leases_of(claim):
                self._end(lease)

    def collect(self) -> None:
        """End the leases that all consumers have acknowledged, and those that have timed out."""
        with self._lock:
            self._collect()

    @property
    def leased(self) -> int:
        """The bytes of the pool that are leased, with their padding."""
        return sum(lease.size for lease in list(self._active.values()))

    @property
    def leases(self) -> int:
        """The number of leases."""
        return len(self._active)

    def close(self) -> None:
        """End all leases."""
        with self._lock:
            for lease in list(self._active.values()):
                self._end(lease)
            self._segment.close()

    def _leases_of(self, claim: Claim) -> list[_ActiveLease]:
        return [lease for lease in list(self._active.values()) if lease.claim() is claim]

    def _reserve(self, size: int, overflow: Segment | None, claim: Claim) -> _ActiveLease | None:
        """Add a lease of a free slot and of a gap of `size` bytes, or return None."""
        while True:
            last_generation = self._generation
            gap = self._find_gap(size)
            if gap is None:
                return None
            slot, offset = gap
            since, generation = self._clock(), last_generation % 0xFFFFFFFF + 1
            lease = _ActiveLease(
                slot, generation, offset, size, since, overflow, weakref.ref(claim)
            )
            # A signal handler may have leased meanwhile: then search again. None runs between the
            # next three lines, which neither call nor loop.
            if self._generation == last_generation:
                self._generation = generation
                self._active[slot] = lease
                return lease

    def _find_gap(self, size: int) -> tuple[int, int] | None:
        """Return a free slot and the offset of the first gap that is large enough."""
        slot = next((slot for slot in range(self.layout.slots) if slot not in self._active), None)
        if slot is None:
            return None
        if size == 0:
            return slot, 0
        start = 0
        for lease in sorted(self._active.values(), key=attrgetter("offset")):
            if lease.size and lease.offset - start >= size:
                break
            start = max(start, lease.offset + lease.size)
        return (slot, start) if start + size <= self.layout.nbytes else None

    def _write_slot(self, lease: _ActiveLease, nbytes: int) -> None:
        """Write a lease where its consumers read it; the generation, which makes it valid, last."""
        offset = self.layout.slot_offset(lease.slot)
        self._longs[offset // 8 + 1] = lease.offset
        self._longs[offset // 8 + 2] = nbytes
        self._words[offset // 4 + 1] = lease.generation if lease.overflow else 0
        self._words[offset // 4] = lease.generation

    def _collect(self) -> None:
        oldest = self._clock() - self._timeout
        for lease in list(self._active.values()):
            first = self.layout.slot_offset(lease.slot) // 4
            if self._words[first + 1] != lease.generation:
                # A copy that is not done yet would overwrite the next lease's slice.
                if lease.claim() is None:
                    self._end(lease)
                continue
            words = self._words[first + 6 : first + 6 + self.layout.consumers]
            if lease.since < oldest or all(word == lease.generation for word in words):
                self._end(lease)

    def _end(self, lease: _ActiveLease) -> None:
        self._words[self.layout.slot_offset(lease.slot) // 4] = 0
        if self._active.get(lease.slot) is lease:
            del self._active[lease.slot]
        if lease.overflow is not None:
            lease.overflow.close()
