"""The same digests on a CUDA device: kernels, their compiler and their launches.

Importing this package loads neither torch nor the CUDA driver. The first hash loads the driver.
"""

from mmhash.cuda.device import why_unavailable
from mmhash.cuda.frames import Frames, framing_key
from mmhash.cuda.launch import Pending, hash_segments

__all__ = [
    "Frames",
    "Pending",
    "framing_key",
    "hash_segments",
    "why_unavailable",
]
