"""The same digests on a CUDA device: kernels, their compiler and their launch.

Nothing here imports torch or touches a driver before it is asked to hash.
"""

from mmhash.cuda.frames import Frames, framing_key
from mmhash.cuda.launch import Pending, hash_segments, why_unavailable

__all__ = ["Frames", "Pending", "framing_key", "hash_segments", "why_unavailable"]
