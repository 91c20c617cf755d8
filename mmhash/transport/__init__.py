"""Features that are passed by handle and hashed in place.

Until bytes are read, nothing here imports torch or loads a driver.
"""

from mmhash.transport.cuda_pool import FeaturePool
from mmhash.transport.cuda_tensor import IpcTensor
from mmhash.transport.segments import remove_orphans
from mmhash.transport.shm_pool import SharedPool
from mmhash.transport.shm_tensor import SharedTensor

__all__ = [
    "FeaturePool",
    "IpcTensor",
    "SharedPool",
    "SharedTensor",
    "remove_orphans",
]
