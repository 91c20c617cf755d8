"""The consumer's side of a lease: checks the ledger and acknowledges the slice."""

import time
import weakref

from mmhash.errors import TransportError
from mmhash.transport.handles import Grant
from mmhash.transport.layout import ACKNOWLEDGED_OFFSET, SLOT, Layout
from mmhash.transport.segments import has_owner, map_shared

# A reader polls the ready word at this interval. Every so many polls, it checks that the owner
# runs.
_POLL_S = 50e-6
_OWNER_POLLS = 200


class _OpenLedger:
    """A ledger as its consumers read it, in place."""

    def __init__(self, name: str) -> None:
        mapping = map_shared(name)
        self.layout = Layout.parse(name, mapping)
        self._mapping = mapping
        # A single store per word; struct would write byte by byte.
        self._words = memoryview(mapping).cast("I")

    def slot(self, slot: int) -> tuple[int, int, int, int]:
        """Return the generation, ready word, offset and length of a slot."""
        return SLOT.unpack_from(self._mapping, self.layout.slot_offset(slot))

    def acknowledge(self, slot: int, consumer: int, generation: int) -> None:
        """Write a consumer's word."""
        offset = self.layout.slot_offset(slot) + ACKNOWLEDGED_OFFSET
        self._words[offset // 4 + consumer] = generation


# A ledger is opened once for all leases. Two threads may both open it, which is only slower.
_ledgers: weakref.WeakValueDictionary[str, _OpenLedger] = weakref.WeakValueDictionary()


class Lease:
    """The consumer's side of one lease; the ledger is opened on first use."""

    def __init__(self, grant: Grant, consumer: int) -> None:
        self._grant = grant
        self._consumer = consumer
        self._ledger: _OpenLedger | None = None

    @property
    def layout(self) -> Layout:
        """The ledger's layout, checked to contain this lease's slot and this consumer's word."""
        return self._opened().layout

    def check(self) -> None:
        """Raise if the lease has ended: bytes read until now may belong to another feature."""
        self._check(self._opened().slot(self._grant.slot)[0])

    def check_range(self, offset: int, nbytes: int) -> None:
        """Raise unless the bytes are within the slice, and the slice is within the pool."""
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
        if ledger.slot(grant.slot)[0] == grant.generation:  # otherwise a later lease has the word
            ledger.acknowledge(grant.slot, self._consumer, grant.generation)

    def _opened(self) -> _OpenLedger:
        if self._ledger is None:
            ledger = _ledgers.get(self._grant.name)
            if ledger is None:
                ledger = _ledgers[self._grant.name] = _OpenLedger(self._grant.name)
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
