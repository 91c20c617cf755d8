"""The leases of a pool, in a small segment that the producer and its consumers share.

A slot is a lease. The producer writes the range of its slice and a generation number. The device
writes the generation to the slot's ready word when the copy is done, and each consumer to a word of
its own when it has released the slice. A word with another generation belongs to another lease, so
a late write of an expired lease has no effect, and no two processes write the same word.
"""

import os
import struct
import threading
import time
import weakref
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple, Self

from mmhash.errors import InputValueError, TransportError
from mmhash.forks import call_in_child
from mmhash.transport.handles import Grant
from mmhash.transport.segments import Segment, has_owner, identity, map_shared, open_segment

MAX_SLOTS = 4096
MAX_CONSUMERS = 64
ALIGNMENT = 512
# Bytes of the reference to the pool's memory: the driver's handle, or a segment's name.
MEMORY_SIZE = 64

_MAGIC = b"mmhpool1"
_HEADER = struct.Struct(f"<8sIIQ{MEMORY_SIZE}s")
_SLOTS_OFFSET = 128
_LINE = 64  # each slot starts a new cache line
_SLOT = struct.Struct("<IIQQ")  # generation, ready, offset, nbytes; then the consumers' words
_ACKNOWLEDGED_OFFSET = _SLOT.size
_WORD = struct.Struct("<I")
_MAX_BYTES = _SLOTS_OFFSET + MAX_SLOTS * (_ACKNOWLEDGED_OFFSET + 4 * MAX_CONSUMERS + _LINE)

# A reader polls the ready word at this interval, and its owner's process every so many polls.
_POLL_S = 50e-6
_OWNER_POLLS = 200


def _slot_size(consumers: int) -> int:
    return (_ACKNOWLEDGED_OFFSET + 4 * consumers + _LINE - 1) // _LINE * _LINE


class Layout(NamedTuple):
    """The header of a ledger, and the offsets of its slots."""

    name: str
    slots: int
    consumers: int
    nbytes: int
    memory: bytes

    @classmethod
    def parse(cls, name: str, header: bytes, size: int) -> Self:
        """Parse the header of a ledger of `size` bytes; raise if it is invalid."""
        if len(header) == _HEADER.size:
            magic, slots, consumers, nbytes, memory = _HEADER.unpack(header)
            if (
                magic == _MAGIC
                and 0 < slots <= MAX_SLOTS
                and 0 < consumers <= MAX_CONSUMERS
                and size == _SLOTS_OFFSET + slots * _slot_size(consumers)
            ):
                return cls(name, slots, consumers, nbytes, memory)
        raise TransportError(f"segment {name} is not a ledger of a pool")

    def slot_offset(self, slot: int) -> int:
        """Return the offset of a slot, in bytes."""
        return _SLOTS_OFFSET + slot * _slot_size(self.consumers)

    def is_pool_segment(self, name: str) -> bool:
        """Return True if the pool's memory is the segment of that name."""
        return self.memory.rstrip(b"\0") == name.encode()

    def ready_offset(self, slot: int) -> int:
        """Return the offset of a slot's ready word, in bytes."""
        return self.slot_offset(slot) + 4


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
        self._segment = Segment(_SLOTS_OFFSET + slots * _slot_size(consumers))
        header = _HEADER.pack(_MAGIC, slots, consumers, nbytes, memory)
        self._segment.fill(memoryview(header))
        self.mapping = map_shared(self._segment.name, _SLOTS_OFFSET, _MAX_BYTES)
        self.layout = Layout.parse(self._segment.name, header, len(self.mapping))
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


class _LedgerFile:
    """A ledger as its consumers read it.

    They use pread() and no mapping: the owner can truncate the file, and reading the mapping would
    then end the process (SIGBUS).
    """

    def __init__(self, layout: Layout, file: int) -> None:
        self.layout = layout
        self._file = file
        # Not at exit: the finalizers that acknowledge leases then still need it.
        weakref.finalize(self, os.close, file).atexit = False

    def slot(self, slot: int) -> tuple[int, int, int, int]:
        """Return generation, ready word, offset and length of a slot."""
        content = os.pread(self._file, _SLOT.size, self.layout.slot_offset(slot))
        if len(content) != _SLOT.size:
            raise TransportError(f"segment {self.layout.name} was truncated")
        return _SLOT.unpack(content)

    def acknowledge(self, slot: int, consumer: int, generation: int) -> None:
        """Write a consumer's word."""
        offset = self.layout.slot_offset(slot) + _ACKNOWLEDGED_OFFSET + 4 * consumer
        os.pwrite(self._file, _WORD.pack(generation), offset)


class _LedgerFiles:
    """The open ledgers, by the verified identity of each: another file can take its name."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may run in between, and acknowledge
        self._open: weakref.WeakValueDictionary[tuple[object, ...], _LedgerFile] = (
            weakref.WeakValueDictionary()
        )
        call_in_child(self, _LedgerFiles.after_fork)

    def after_fork(self) -> None:
        """Replace the lock: a thread of the parent may have held it."""
        self._lock = threading.RLock()

    def open(self, name: str) -> _LedgerFile:
        """Return the ledger of that name, opened once for all its leases."""
        with self._lock:
            file, status = open_segment(name, os.O_RDWR, _SLOTS_OFFSET)
            try:
                key = (name, identity(status))
                ledger = self._open.get(key)
                if ledger is None:
                    if status.st_size > _MAX_BYTES:
                        raise TransportError(
                            f"segment {name} has {status.st_size} bytes: {_MAX_BYTES} at most are"
                            " expected of a ledger"
                        )
                    layout = Layout.parse(name, os.pread(file, _HEADER.size, 0), status.st_size)
                    self._open[key] = ledger = _LedgerFile(layout, os.dup(file))
                return ledger
            finally:
                os.close(file)


_ledgers = _LedgerFiles()


class Lease:
    """The consumer's side of one lease; the ledger is opened on first use."""

    def __init__(self, grant: Grant, consumer: int) -> None:
        self._grant = grant
        self._consumer = consumer
        self._ledger: _LedgerFile | None = None

    @property
    def layout(self) -> Layout:
        """The ledger's layout, checked to have this lease's slot and this consumer's word."""
        return self._opened().layout

    def check(self) -> None:
        """Raise if the lease has ended: bytes read before this may be another feature's."""
        self._check(self._opened().slot(self._grant.slot)[0])

    def check_range(self, offset: int, nbytes: int) -> None:
        """Raise unless the bytes are within the slice, and the slice within the pool."""
        ledger = self._opened()
        generation, _, start, length = ledger.slot(self._grant.slot)
        self._check(generation)
        if not start <= offset <= offset + nbytes <= start + length <= ledger.layout.nbytes:
            raise TransportError("a handle's bytes are not within the slice of its lease")

    def wait_ready(self, timeout: float) -> None:
        """Wait until the producer's copy is done."""
        ledger = self._opened()
        deadline = time.monotonic() + timeout
        polls = 0
        while True:
            generation, ready, _, _ = ledger.slot(self._grant.slot)
            if ready == self._grant.generation:
                return
            polls += 1
            if polls % _OWNER_POLLS == 0 and not has_owner(ledger.layout.name):
                raise TransportError("the producer has exited, and its copy was not done")
            if time.monotonic() > deadline:
                raise TransportError(f"the producer's copy was not done within {timeout:g} s")
            self._check(generation)
            time.sleep(_POLL_S)

    def acknowledge(self) -> None:
        """Record that this consumer has released the slice; idempotent."""
        ledger, grant = self._opened(), self._grant
        if ledger.slot(grant.slot)[0] == grant.generation:  # else the word belongs to a later lease
            ledger.acknowledge(grant.slot, self._consumer, grant.generation)

    def _opened(self) -> _LedgerFile:
        if self._ledger is None:
            ledger = _ledgers.open(self._grant.name)
            layout = ledger.layout
            if self._grant.slot >= layout.slots:
                raise TransportError(f"the pool has no slot {self._grant.slot} of {layout.slots}")
            if not 0 <= self._consumer < layout.consumers:
                raise TransportError(
                    f"the pool has no consumer {self._consumer} of {layout.consumers}"
                )
            self._ledger = ledger
        return self._ledger

    def _check(self, generation: int) -> None:
        if generation != self._grant.generation:
            raise TransportError(
                "the lease is over: it was acknowledged or timed out, and its slice may be reused"
            )
