"""What malloc keeps between the pieces of bodies, and what it gives back.

glibc learns both from what it is asked for. In one process it kept the 256 KiB that a piece of a
body takes, in another it gave them back and had them mapped anew, page by page, for each piece:
bodies of 20 MiB came at 2.2 or at 1.0 GB/s, by chance. And having met a large block it kept large
blocks for ever.
"""

import ctypes

# Numbers of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

# Pieces lie below, whole bodies and decoded images above: those have a mapping of their own, which
# goes with them.
_MAPPED_FROM = 512 << 10
# As much as the pieces of some 50 bodies.
_KEPT = 16 << 20


def keep_pieces() -> None:
    """Have malloc keep what pieces need, and nothing larger, if it is one that can be told."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
