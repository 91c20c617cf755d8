"""Fixed malloc thresholds, so that buffers are reused from request to request.

By default glibc adapts its thresholds to the allocations it has seen. Some processes kept the
256 KiB buffer of a body's chunk; others unmapped it and mapped it again, page by page, for each
chunk: bodies of 20 MiB were received at 2.2 or at 1.0 GB/s, by chance. With these two thresholds it
is always the faster one, large images are decoded faster, and less memory stays in use.
"""

import ctypes

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

# Larger allocations get a mapping of their own, which is returned when they are freed. Chunks and
# images of a megapixel are smaller. By default glibc raises this threshold up to 32 MiB, and small
# blocks then fragment what it keeps.
_MMAP_THRESHOLD = 4 << 20
# Free memory that is kept at the top of the heap. With 16 MiB, two megapixels take longer to
# decode.
_TRIM_THRESHOLD = 64 << 20


def tune_malloc() -> None:
    """Set the thresholds, if the C library has mallopt."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)
