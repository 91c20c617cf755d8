"""A pool of shared memory, leased in slices to features for other processes.

New pages cost more than a hash. A pool's pages already exist, and readers keep its mapping.
"""

import os
import weakref
from typing import Any

import numpy as np

from mmhash.arguments import check_int
from mmhash.errors import TransportError
from mmhash.forks import check_not_forked
from mmhash.transport.handles import Handle
from mmhash.transport.ledger import Ledger
from mmhash.transport.segments import Segment, map_shared
from mmhash.transport.shm_tensor import SharedTensor, leased_tensor, shareable


class SharedPool:
    """Shared memory of `nbytes`, leased to features in slices; a process needs one or a few.

    A lease ends once each of `consumers` processes has closed the feature that it opened. A lease
    older than `timeout_s` is revoked by the next `lease()`. Only the process that made the
    pool leases from it; a forked child must make its own.
    """

    def __init__(self, nbytes: int, *, consumers: int = 1, timeout_s: float = 60.0) -> None:
        self.nbytes = check_int("nbytes", nbytes, 1)
        self._owner = os.getpid()
        segment = Segment(nbytes)
        self._name = segment.name
        self._ledger = Ledger(nbytes, consumers=consumers, timeout_s=timeout_s)
        self._content = np.frombuffer(map_shared(segment.name), np.uint8)
        self._free = weakref.finalize(self, _free, self._owner, self._ledger, segment)

    def lease(self, item: Any) -> SharedTensor:
        """Copy an array, a tensor or bytes into a slice; without room, raise a TransportError."""
        check_not_forked("SharedPool", self._owner)
        memory = self._content  # keep the memory mapped even if another thread closes the pool
        if not self._free.alive:
            raise TransportError("the pool was closed")
        view = shareable(item)
        content = view.on_host()
        grant, offset = self._ledger.grant(len(content))
        try:
            memory[offset : offset + len(content)] = np.frombuffer(content, np.uint8)
        except BaseException:
            self._ledger.withdraw(grant)
            raise
        self._ledger.filled(grant)
        name, dtype, shape = self._name, view.dtype, view.shape
        return leased_tensor(Handle("shm", name, offset, len(content), dtype, shape, None), grant)

    def close(self) -> None:
        """Free the memory; idempotent. A forked child leaves the memory to its parent."""
        self._free()
        self._content = np.empty(0, np.uint8)  # unmaps the memory


def _free(owner: int, ledger: Ledger, segment: Segment) -> None:
    if os.getpid() == owner:  # a forked child must not touch the parent's memory
        ledger.close()
        segment.close()
