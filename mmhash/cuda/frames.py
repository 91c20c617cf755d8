"""Frames for keys computed on the device: what a kernel needs to turn a digest into a key."""

from collections.abc import Sequence
from typing import NamedTuple

# The key of BLAKE3's derive-key mode for framing.KEY_CONTEXT. The blake3 package does not expose
# this key; a test derives it again.
CONTEXT_KEY = bytes.fromhex("2eae37b4bc8442252285736b7e2f94b4e0af33a82ab7fe337bb7bdcc17c672df")

KEYED = 16
DERIVE_KEY = 64

MAX_PREIMAGE = 1024  # one chunk of BLAKE3


class Frames(NamedTuple):
    """The key and mode for all items, with each item's preimage and the digest's offset in it.

    The kernel overwrites the digest in a preimage. Each object is stored once, so equal items
    should be one object. framing.preimage_template() returns such items.
    """

    key: bytes
    mode: int
    items: Sequence[tuple[bytes, int]]

    def part(self, start: int, end: int) -> "Frames":
        """Return the frames of some of the items."""
        if end - start == len(self.items):
            return self
        return Frames(self.key, self.mode, self.items[start:end])


def framing_key(tenant_key: bytes | None) -> tuple[bytes, int]:
    """Return the key and mode for frames, derived from the tenant if there is one."""
    return (CONTEXT_KEY, DERIVE_KEY) if tenant_key is None else (tenant_key, KEYED)
