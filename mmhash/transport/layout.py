"""The layout of a ledger: a small segment that lists the leases of a pool.

Each slot holds one lease. The producer writes the range of its slice and a generation number. When
the copy is done, the device writes the generation to the slot's ready word. When a consumer has
released the slice, it writes the generation to its own word. A word with another generation belongs
to another lease, so a late write for an expired lease has no effect. No two processes write the
same word.
"""

import mmap
import struct
from typing import NamedTuple, Self

from mmhash.cuda.driver import IPC_HANDLE_SIZE
from mmhash.errors import TransportError

MAX_SLOTS = 4096
MAX_CONSUMERS = 64
ALIGNMENT = 512
# Bytes of the driver's handle for the pool's memory; zeros if the pool is in shared memory.
MEMORY_SIZE = IPC_HANDLE_SIZE
# Bytes of the UUID of the memory's device, which is the same in all processes.
UUID_SIZE = 16

MAGIC = b"mmhpool1"
HEADER = struct.Struct(f"<8sIIQ{MEMORY_SIZE}s{UUID_SIZE}s")
SLOTS_OFFSET = 128
_LINE = 64  # each slot starts on a new cache line
SLOT = struct.Struct("<IIQQ")  # generation, ready, offset, nbytes; then the consumers' words
ACKNOWLEDGED_OFFSET = SLOT.size


def slot_size(consumers: int) -> int:
    """Return the bytes of a slot in whole cache lines."""
    return (ACKNOWLEDGED_OFFSET + 4 * consumers + _LINE - 1) // _LINE * _LINE


class Layout(NamedTuple):
    """The header of a ledger, and the offsets of its slots."""

    name: str
    slots: int
    consumers: int
    nbytes: int
    memory: bytes
    device: bytes

    @classmethod
    def parse(cls, name: str, ledger: mmap.mmap) -> Self:
        """Read the header of a ledger; raise if the segment is not a ledger."""
        if len(ledger) >= SLOTS_OFFSET:
            magic, slots, consumers, nbytes, memory, device = HEADER.unpack_from(ledger)
            if magic == MAGIC and len(ledger) == SLOTS_OFFSET + slots * slot_size(consumers):
                return cls(name, slots, consumers, nbytes, memory, device)
        raise TransportError(f"segment {name} is not a ledger of a pool")

    def slot_offset(self, slot: int) -> int:
        """Return the offset of a slot, in bytes."""
        return SLOTS_OFFSET + slot * slot_size(self.consumers)

    def ready_offset(self, slot: int) -> int:
        """Return the offset of a slot's ready word, in bytes."""
        return self.slot_offset(slot) + 4
