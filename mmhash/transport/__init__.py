"""Features that travel by handle and are hashed where they lie.

Nothing here imports torch or touches a driver before bytes are asked for.
"""

from mmhash.transport.cuda_pool import FeaturePool
from mmhash.transport.cuda_tensor import IpcTensor
from mmhash.transport.nested import contains_handles, materialize
from mmhash.transport.segments import sweep
from mmhash.transport.shm_pool import SharedPool
from mmhash.transport.shm_tensor import SharedTensor

__all__ = [
    "FeaturePool",
    "IpcTensor",
    "SharedPool",
    "SharedTensor",
    "contains_handles",
    "materialize",
    "sweep",
]
