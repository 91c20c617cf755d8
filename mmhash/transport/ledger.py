"""Who has which slice of a pool: a small segment that the producer and its consumers all see.

A slot is a lease. The producer writes where its slice lies and a generation; the device writes the
generation once more when the copy is there; each consumer, when it needs the slice no longer. A
word that holds another generation is of another lease, so late words of a lost lease mean nothing,
and no word is ever written by two processes.
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
from mmhash.transport.fork import watch_forks
from mmhash.transport.handles import Grant
from mmhash.transport.segments import Segment, identity, is_there, map_shared, open_segment

MAX_SLOTS = 4096
MAX_CONSUMERS = 64
ALIGNMENT = 512
MEMORY_SIZE = 64  # bytes of what says where the pool's memory is, by the driver or by its name

_MAGIC = b"mmhpool1"
_HEADER = struct.Struct(f"<8sIIQ{MEMORY_SIZE}s")
_SLOTS_AT = 128
_LINE = 64  # a slot starts a cache line of its own
_SLOT = struct.Struct("<IIQQ")  # generation, ready, offset, nbytes; then the consumers' words
_ACKNOWLEDGED_AT = _SLOT.size
_WORD = struct.Struct("<I")
_MOST = _SLOTS_AT + MAX_SLOTS * (_ACKNOWLEDGED_AT + 4 * MAX_CONSUMERS + _LINE)

# A reader looks at the ready word this often, and at whether its owner lives every so many looks.
_NAP = 50e-6
_LOOKS = 200


def _slot_size(consumers: int) -> int:
    return (_ACKNOWLEDGED_AT + 4 * consumers + _LINE - 1) // _LINE * _LINE


class Layout(NamedTuple):
    """The header of a ledger, and where its slots are."""

    name: str
    slots: int
    consumers: int
    nbytes: int
    memory: bytes

    @classmethod
    def parse(cls, name: str, header: bytes, size: int) -> Self:
        """Read the header of a ledger of `size` bytes; raise if it is none."""
        if len(header) == _HEADER.size:
            magic, slots, consumers, nbytes, memory = _HEADER.unpack(header)
            if (
                magic == _MAGIC
                and 0 < slots <= MAX_SLOTS
                and 0 < consumers <= MAX_CONSUMERS
                and size == _SLOTS_AT + slots * _slot_size(consumers)
            ):
                return cls(name, slots, consumers, nbytes, memory)
        raise TransportError(f"segment {name} is no ledger of a pool")

    def at(self, slot: int) -> int:
        """Where a slot starts, in bytes."""
        return _SLOTS_AT + slot * _slot_size(self.consumers)

    def lends(self, name: str) -> bool:
        """Whether the pool's memory is the segment of that name."""
        return self.memory.rstrip(b"\0") == name.encode()

    def ready_at(self, slot: int) -> int:
        """Where its ready word lies, in bytes."""
        return self.at(slot) + 4


class Claim:
    """A call that takes a lease. If it is interrupted, its lease has no other user."""


_KEPT = Claim()  # of a lease that ends only by acknowledgement or time


class _Live(NamedTuple):
    slot: int
    generation: int
    offset: int
    size: int
    since: float
    kept: Segment | None
    claim: Callable[[], Claim | None]


class Ledger:
    """The producer's side: grants slices, and takes them back.

    An exception may strike between any two lines, from a signal handler for one. So `_live` is the
    only state: a lease starts when it is put there and ends when it is taken out, each in one step,
    and which slots and bytes are free is read from it.
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
        self._segment = Segment(_SLOTS_AT + slots * _slot_size(consumers))
        header = _HEADER.pack(_MAGIC, slots, consumers, nbytes, memory)
        self._segment.fill(memoryview(header))
        self.mapping = map_shared(self._segment.name, _SLOTS_AT, _MOST)
        self.layout = Layout.parse(self._segment.name, header, len(self.mapping))
        self._words = memoryview(self.mapping).cast("I")
        self._longs = memoryview(self.mapping).cast("Q")
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.RLock()  # a signal handler may lease while its thread does
        self._generation = 0
        self._live: dict[int, _Live] = {}

    def grant(
        self, nbytes: int, kept: Segment | None = None, *, claim: Claim = _KEPT
    ) -> tuple[Grant, int] | None:
        """A lease and the offset of its slice, or None if there is no room.

        Until filled() or queued(), the lease ends with `claim`. What is `kept` lies elsewhere: it
        takes only a slot, needs no copy, and is closed when the lease ends.
        """
        size = 0 if kept else (max(nbytes, 1) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        with self._lock:
            live = self._claim_room(size, claim, kept)
            if live is None:
                return None
            at = self.layout.at(live.slot)
            self._longs[at // 8 + 1] = live.offset
            self._longs[at // 8 + 2] = nbytes
            self._words[at // 4 + 1] = live.generation if kept else 0
            self._words[at // 4] = live.generation
            return Grant(self.layout.name, live.slot, live.generation), live.offset

    def filled(self, grant: Grant) -> None:
        """Record that the copy is there, if no device does so behind it."""
        self._words[self.layout.ready_at(grant.slot) // 4] = grant.generation

    def queued(self, claim: Claim) -> None:
        """Record that a device may have been given the copy, and will write the ready word."""
        with self._lock:
            for live in self._of(claim):
                self._live[live.slot] = live._replace(claim=lambda: _KEPT)

    def withdraw(self, claim: Claim) -> None:
        """End the lease of an interrupted call, if it got one."""
        with self._lock:
            for live in self._of(claim):
                self._take_back(live)

    def collect(self) -> None:
        """Take back what all have acknowledged, and what nobody did in time."""
        with self._lock:
            self._collect()

    @property
    def leased(self) -> int:
        """The bytes of the pool that are leased, with their padding."""
        return sum(live.size for live in list(self._live.values()))

    @property
    def leases(self) -> int:
        """The number of leases."""
        return len(self._live)

    def close(self) -> None:
        """End all leases."""
        with self._lock:
            for live in list(self._live.values()):
                self._take_back(live)
            self._segment.close()

    def _of(self, claim: Claim) -> list[_Live]:
        return [live for live in list(self._live.values()) if live.claim() is claim]

    def _claim_room(self, size: int, claim: Claim, kept: Segment | None) -> _Live | None:
        while True:
            before = self._generation
            place = self._place(size)
            if place is None:
                self._collect()
                place = self._place(size)
                if place is None:
                    return None
            slot, offset = place
            since, generation = self._clock(), before % 0xFFFFFFFF + 1
            live = _Live(slot, generation, offset, size, since, kept, weakref.ref(claim))
            # A signal handler may have leased since. None comes between these three lines, which
            # neither call nor loop.
            if self._generation == before:
                self._generation = generation
                self._live[slot] = live
                return live

    def _place(self, size: int) -> tuple[int, int] | None:
        """A free slot and the offset of the first gap that is large enough."""
        slot = next((slot for slot in range(self.layout.slots) if slot not in self._live), None)
        if slot is None:
            return None
        if size == 0:
            return slot, 0
        start = 0
        for live in sorted(self._live.values(), key=attrgetter("offset")):
            if live.size and live.offset - start >= size:
                break
            start = max(start, live.offset + live.size)
        return (slot, start) if start + size <= self.layout.nbytes else None

    def _collect(self) -> None:
        oldest = self._clock() - self._timeout
        for live in list(self._live.values()):
            first = self.layout.at(live.slot) // 4
            if self._words[first + 1] != live.generation:
                # A copy that is still on its way would land in the next lease's slice.
                if live.claim() is None:
                    self._take_back(live)
                continue
            words = self._words[first + 6 : first + 6 + self.layout.consumers]
            if live.since < oldest or all(word == live.generation for word in words):
                self._take_back(live)

    def _take_back(self, live: _Live) -> None:
        self._words[self.layout.at(live.slot) // 4] = 0
        if self._live.get(live.slot) is live:
            del self._live[live.slot]
        if live.kept is not None:
            live.kept.close()


class _LedgerFile:
    """A ledger as its consumers read it.

    By pread() and not through a mapping: its owner can cut it short, and a mapping of what is gone
    ends the process.
    """

    def __init__(self, layout: Layout, file: int) -> None:
        self.layout = layout
        self._file = file
        # Not at the end of the process: what acknowledges then needs it still.
        weakref.finalize(self, os.close, file).atexit = False

    def slot(self, slot: int) -> tuple[int, int, int, int]:
        """Generation, ready word, offset and length of a slot."""
        found = os.pread(self._file, _SLOT.size, self.layout.at(slot))
        if len(found) != _SLOT.size:
            raise TransportError(f"segment {self.layout.name} was cut short")
        return _SLOT.unpack(found)

    def acknowledge(self, slot: int, consumer: int, generation: int) -> None:
        """Write a consumer's word."""
        at = self.layout.at(slot) + _ACKNOWLEDGED_AT + 4 * consumer
        os.pwrite(self._file, _WORD.pack(generation), at)


class _LedgerFiles:
    """The open ledgers, by what was verified of each: its name can be taken by another file."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may come in between, and acknowledge
        self._open: weakref.WeakValueDictionary[tuple[object, ...], _LedgerFile] = (
            weakref.WeakValueDictionary()
        )
        watch_forks(self)

    def after_fork(self) -> None:
        """Use a new lock: the thread that held the old one is not here."""
        self._lock = threading.RLock()

    def open(self, name: str) -> _LedgerFile:
        """The ledger of that name, opened once for all leases of it."""
        with self._lock:
            file, found = open_segment(name, os.O_RDWR, _SLOTS_AT)
            try:
                key = (name, identity(found))
                ledger = self._open.get(key)
                if ledger is None:
                    if found.st_size > _MOST:
                        raise TransportError(
                            f"segment {name} has {found.st_size} bytes: {_MOST} at most are"
                            " expected of a ledger"
                        )
                    layout = Layout.parse(name, os.pread(file, _HEADER.size, 0), found.st_size)
                    self._open[key] = ledger = _LedgerFile(layout, os.dup(file))
                return ledger
            finally:
                os.close(file)


_ledgers = _LedgerFiles()


class Lease:
    """A consumer's side of one lease; the ledger is opened when it is first asked."""

    def __init__(self, grant: Grant, consumer: int) -> None:
        self._grant = grant
        self._consumer = consumer
        self._ledger: _LedgerFile | None = None

    @property
    def layout(self) -> Layout:
        """The ledger's layout, checked to have this lease's slot and this consumer's word."""
        return self._opened().layout

    def check(self) -> None:
        """Raise if the slice is another's by now: what was read since the last check may be its."""
        self._check(self._opened().slot(self._grant.slot)[0])

    def check_range(self, offset: int, nbytes: int) -> None:
        """Raise unless the bytes lie in the slice, and the slice in the pool."""
        ledger = self._opened()
        generation, _, start, length = ledger.slot(self._grant.slot)
        self._check(generation)
        if not start <= offset <= offset + nbytes <= start + length <= ledger.layout.nbytes:
            raise TransportError("a handle's bytes do not lie in the slice of its lease")

    def wait_ready(self, timeout: float) -> None:
        """Wait until the producer's copy is there."""
        ledger = self._opened()
        until = time.monotonic() + timeout
        looks = 0
        while True:
            generation, ready, _, _ = ledger.slot(self._grant.slot)
            if ready == self._grant.generation:
                return
            looks += 1
            if looks % _LOOKS == 0 and not is_there(ledger.layout.name):
                raise TransportError("the producer is gone, and its copy was not done")
            if time.monotonic() > until:
                raise TransportError(f"the producer's copy was not done within {timeout:g} s")
            self._check(generation)
            time.sleep(_NAP)

    def acknowledge(self) -> None:
        """Record that this consumer needs the slice no longer; once or often."""
        ledger, grant = self._opened(), self._grant
        if ledger.slot(grant.slot)[0] == grant.generation:  # else the word is of a later lease
            ledger.acknowledge(grant.slot, self._consumer, grant.generation)

    def _opened(self) -> _LedgerFile:
        if self._ledger is None:
            ledger = _ledgers.open(self._grant.name)
            layout = ledger.layout
            if self._grant.slot >= layout.slots:
                raise TransportError(f"the pool has {layout.slots} slots, none {self._grant.slot}")
            if not 0 <= self._consumer < layout.consumers:
                raise TransportError(
                    f"the pool has {layout.consumers} consumers, none is number {self._consumer}"
                )
            self._ledger = ledger
        return self._ledger

    def _check(self, generation: int) -> None:
        if generation != self._grant.generation:
            raise TransportError(
                "the lease is over: it was acknowledged, or not in time, and its slice is another's"
            )
