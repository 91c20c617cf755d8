"""Who has which slice of a pool: a small segment that the producer and its consumers all see.

A slot is a lease. The producer writes where its slice lies and a generation; the device writes the
generation once more when the copy is there; each consumer, when it needs the slice no longer. A
word that holds another generation is of another lease, so late words of a lost lease mean nothing,
and no word is ever written by two processes.
"""

import struct
import threading
import time
from bisect import bisect
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakValueDictionary

from mmhash.errors import InputValueError, TransportError
from mmhash.transport.handles import Grant
from mmhash.transport.segments import Segment, is_there, map_shared

MAX_SLOTS = 4096
MAX_CONSUMERS = 64
ALIGNMENT = 512
MEMORY_SIZE = 64  # bytes of what says where the pool's memory is, by the driver or by its name

_MAGIC = b"mmhpool1"
_HEADER = struct.Struct(f"<8sIIQ{MEMORY_SIZE}s")
_SLOTS_AT = 128
_LINE = 64  # a slot starts a cache line of its own
# In a slot: generation, ready (32 bits each), offset, nbytes (64 bits each), then the consumers.
_ACKNOWLEDGED_AT = 24
_MOST = _SLOTS_AT + MAX_SLOTS * (_ACKNOWLEDGED_AT + 4 * MAX_CONSUMERS + _LINE)

# A reader looks at the ready word this often, and at whether its owner lives every so many looks.
_NAP = 50e-6
_LOOKS = 200


def _slot_size(consumers: int) -> int:
    return (_ACKNOWLEDGED_AT + 4 * consumers + _LINE - 1) // _LINE * _LINE


class Control:
    """The segment as words, for either side."""

    memory: bytes

    def __init__(self, name: str) -> None:
        self.name = name
        self.mapping = map_shared(name, _SLOTS_AT, _MOST)
        magic, self.slots, self.consumers, self.nbytes, self.memory = _HEADER.unpack_from(
            self.mapping
        )
        if (
            magic != _MAGIC
            or not 0 < self.slots <= MAX_SLOTS
            or not 0 < self.consumers <= MAX_CONSUMERS
            or len(self.mapping) != _SLOTS_AT + self.slots * _slot_size(self.consumers)
        ):
            raise TransportError(f"segment {name} is no ledger of a pool")
        self.words = memoryview(self.mapping).cast("I")
        self.longs = memoryview(self.mapping).cast("Q")

    def at(self, slot: int) -> int:
        """Where a slot starts, in bytes."""
        return _SLOTS_AT + slot * _slot_size(self.consumers)

    def lends(self, name: str) -> bool:
        """Whether the pool's memory is the segment of that name."""
        return self.memory.rstrip(b"\0") == name.encode()

    def ready_at(self, slot: int) -> int:
        """Where its ready word lies, in bytes."""
        return self.at(slot) + 4


class _Live(NamedTuple):
    generation: int
    offset: int
    size: int
    since: float
    kept: Segment | None


class Ledger:
    """The producer's side: grants slices, and takes them back."""

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
        self._segment.fill(memoryview(_HEADER.pack(_MAGIC, slots, consumers, nbytes, memory)))
        self.control = Control(self._segment.name)
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._generation = 0
        self._live: dict[int, _Live] = {}
        self._slots = list(range(slots))
        self._free = [(0, nbytes)] if nbytes else []  # (offset, size), in order, none adjoining

    def grant(self, nbytes: int, kept: Segment | None = None) -> tuple[Grant, int] | None:
        """A lease and the offset of its slice, or None if there is no room.

        What is `kept` lies elsewhere: it takes a slot alone, and is closed when the lease ends.
        """
        size = 0 if kept else (max(nbytes, 1) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        with self._lock:
            offset = self._place(size)
            if offset is None:
                self._collect()
                offset = self._place(size)
                if offset is None:
                    return None
            slot = self._slots.pop()
            self._generation = generation = self._generation % 0xFFFFFFFF + 1
            self._live[slot] = _Live(generation, offset, size, self._clock(), kept)
            control, at = self.control, self.control.at(slot)
            control.longs[at // 8 + 1] = offset
            control.longs[at // 8 + 2] = nbytes
            control.words[at // 4 + 1] = generation if kept else 0
            control.words[at // 4] = generation
            return Grant(control.name, slot, generation), offset

    def filled(self, grant: Grant) -> None:
        """Say that the copy is there, where no device says so behind it."""
        self.control.words[self.control.ready_at(grant.slot) // 4] = grant.generation

    def collect(self) -> None:
        """Take back what all have acknowledged, and what nobody did in time."""
        with self._lock:
            self._collect()

    @property
    def leased(self) -> int:
        """How many bytes of the pool are leased, the padding with them."""
        return sum(live.size for live in self._live.values())

    @property
    def leases(self) -> int:
        """How many leases there are."""
        return len(self._live)

    def close(self) -> None:
        """End all leases."""
        with self._lock:
            for slot in list(self._live):
                self._take_back(slot)
            self._segment.close()

    def _place(self, size: int) -> int | None:
        if not self._slots:
            return None
        if size == 0:
            return 0
        for index, (offset, room) in enumerate(self._free):
            if room >= size:
                rest = [(offset + size, room - size)] if room > size else []
                self._free[index : index + 1] = rest
                return offset
        return None

    def _collect(self) -> None:
        oldest = self._clock() - self._timeout
        for slot, live in list(self._live.items()):
            first = self.control.at(slot) // 4
            # A copy that is still on its way would land in the next tenant's slice.
            if self.control.words[first + 1] != live.generation:
                continue
            words = self.control.words[first + 6 : first + 6 + self.control.consumers]
            if live.since < oldest or all(word == live.generation for word in words):
                self._take_back(slot)

    def _take_back(self, slot: int) -> None:
        live = self._live.pop(slot)
        self.control.words[self.control.at(slot) // 4] = 0
        self._slots.append(slot)
        if live.kept is not None:
            live.kept.close()
            return
        start, end = live.offset, live.offset + live.size
        at = bisect(self._free, (start, 0))
        first = last = at
        if at > 0 and sum(self._free[at - 1]) == start:
            first, start = at - 1, self._free[at - 1][0]
        if at < len(self._free) and self._free[at][0] == end:
            last, end = at + 1, sum(self._free[at])
        self._free[first:last] = [(start, end - start)]


_controls: WeakValueDictionary[str, Control] = WeakValueDictionary()
_opening = threading.RLock()  # a finaliser may come in between, and acknowledge


class Lease:
    """A consumer's side of one lease; the ledger is opened when it is first asked."""

    def __init__(self, grant: Grant, consumer: int) -> None:
        self._grant = grant
        self._consumer = consumer
        self._control: Control | None = None

    @property
    def control(self) -> Control:
        """The ledger, checked to have this lease's slot and this consumer's word."""
        if self._control is None:
            with _opening:
                control = _controls.get(self._grant.name)
                if control is None:
                    control = _controls[self._grant.name] = Control(self._grant.name)
            if self._grant.slot >= control.slots:
                raise TransportError(f"the pool has {control.slots} slots, none {self._grant.slot}")
            if not 0 <= self._consumer < control.consumers:
                raise TransportError(
                    f"the pool has {control.consumers} consumers, none is number {self._consumer}"
                )
            self._control = control
        return self._control

    def check(self) -> None:
        """Raise if the slice is another's by now: what was read since the last check may be his."""
        control = self.control
        if control.words[control.at(self._grant.slot) // 4] != self._grant.generation:
            raise TransportError(
                "the lease is over: it was acknowledged, or not in time, and its slice is another's"
            )

    def check_range(self, offset: int, nbytes: int) -> None:
        """Raise unless the bytes lie in the slice, and the slice in the pool."""
        control = self.control
        at = control.at(self._grant.slot) // 8
        start, length = control.longs[at + 1], control.longs[at + 2]
        self.check()
        if not start <= offset <= offset + nbytes <= start + length <= control.nbytes:
            raise TransportError("a handle's bytes do not lie in the slice of its lease")

    def wait_ready(self, timeout: float) -> None:
        """Wait until the producer's copy is there."""
        control, generation = self.control, self._grant.generation
        word = control.ready_at(self._grant.slot) // 4
        until = time.monotonic() + timeout
        looks = 0
        while control.words[word] != generation:
            looks += 1
            if looks % _LOOKS == 0 and not is_there(control.name):
                raise TransportError("the producer is gone, and its copy was not done")
            if time.monotonic() > until:
                raise TransportError(f"the producer's copy was not done within {timeout:g} s")
            self.check()
            time.sleep(_NAP)

    def acknowledge(self) -> None:
        """Say that this consumer needs the slice no longer; once or often."""
        control, generation = self.control, self._grant.generation
        first = control.at(self._grant.slot) // 4
        if control.words[first] == generation:  # else the word is of a later lease by now
            control.words[first + 6 + self._consumer] = generation
