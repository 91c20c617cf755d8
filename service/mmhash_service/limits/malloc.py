"""Sets fixed thresholds for malloc, so that requests reuse buffers.

By default glibc adapts its thresholds to the allocations it has seen. By chance, some processes
then keep the 256 KiB buffer of a body's chunk, and others map it again, page by page, for every
chunk. Fixed thresholds always give the faster behaviour. Large images are decoded faster too, and
less memory stays in use.
"""

import ctypes

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

# Larger allocations get their own mapping, which is returned when freed. Chunks and images of
# a megapixel are smaller. By default glibc raises this threshold up to 32 MiB, and then small
# blocks fragment what it keeps.
_MMAP_THRESHOLD = 4 << 20
# How much free memory is kept at the top of the heap. With 16 MiB, images of two megapixels decode
# more slowly.
_TRIM_THRESHOLD = 64 << 20


def tune_malloc() -> None:
    """Set the thresholds if the C library has mallopt."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)
