"""Frames for keys computed on the device: a kernel's input for turning a digest into a key."""

from collections.abc import Sequence
from typing import NamedTuple

# The key of BLAKE3's derive-key mode for framing.KEY_CONTEXT, which the blake3 package does not
# expose; a test derives it again.
CONTEXT_KEY = bytes.fromhex("2eae37b4bc8442252285736b7e2f94b4e0af33a82ab7fe337bb7bdcc17c672df")

KEYED = 16
DERIVE_KEY = 64

MAX_PREIMAGE = 1024  # one chunk: a longer one is framed on the host


class Frames(NamedTuple):
    """One key and mode for all, and for each item its preimage and the offset of the digest in it.

    An item of None stays a digest. The content of a preimage's digest field does not matter: it is
    overwritten. Items should be equal only if they are one object, as framing.preimage_template()
    returns it: each object is stored once.
    """

    key: bytes
    mode: int
    items: Sequence[tuple[bytes, int] | None]

    def part(self, start: int, end: int) -> "Frames":
        """Return the frames of a part of the items."""
        if end - start == len(self.items):
            return self
        return Frames(self.key, self.mode, self.items[start:end])


def framing_key(tenant_key: bytes | None) -> tuple[bytes, int]:
    """Return the key and mode of frames without a tenant, or with the key derived from a tenant."""
    return (CONTEXT_KEY, DERIVE_KEY) if tenant_key is None else (tenant_key, KEYED)
