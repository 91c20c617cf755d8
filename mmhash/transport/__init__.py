"""Features that travel by handle and are hashed where they lie.

Nothing here imports torch or touches a driver before bytes are asked for.
"""

from mmhash.transport.ipc import IpcTensor
from mmhash.transport.nested import materialize, pending
from mmhash.transport.pool import FeaturePool
from mmhash.transport.segments import sweep
from mmhash.transport.shared import SharedTensor
from mmhash.transport.shared_pool import SharedPool

__all__ = [
    "FeaturePool",
    "IpcTensor",
    "SharedPool",
    "SharedTensor",
    "materialize",
    "pending",
    "sweep",
]
