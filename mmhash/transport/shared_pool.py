"""One stretch of shared memory, in which features travel to other processes one after the other.

New pages cost more than a hash: 20 MiB take 10 ms and more to be laid down in a segment of their
own, and 1 ms in a pool, whose pages are there; and its readers keep their mapping of it.
"""

import os
import weakref
from typing import Any

import numpy as np

from mmhash.transport.arguments import check_pool
from mmhash.transport.handles import Handle
from mmhash.transport.ledger import Ledger
from mmhash.transport.segments import Segment, map_shared
from mmhash.transport.shared import SharedTensor, lay_beside, of_pool, shareable


class SharedPool:
    """Shared memory of `nbytes`, leased to features in slices; a process has one, or few.

    Of each lease every one of `consumers` processes must say that it is done, by closing what it
    opened; a lease not ended after `timeout` seconds is taken back when there is need of room.
    """

    def __init__(self, nbytes: int, *, consumers: int = 1, timeout: float = 60.0) -> None:
        check_pool(nbytes, consumers, timeout)
        self.nbytes = nbytes
        segment = Segment(nbytes)
        self._name = segment.name
        self._room = np.frombuffer(map_shared(segment.name, nbytes, nbytes), np.uint8)
        memory = segment.name.encode()
        self._ledger = Ledger(nbytes, memory, consumers=consumers, timeout=timeout)
        self.close = weakref.finalize(self, _close, os.getpid(), self._ledger, segment)

    def lease(self, item: Any) -> SharedTensor:
        """Copy an array, a tensor or bytes into a slice, or without room beside the pool."""
        view = shareable(item)
        content = view.on_host()
        granted = self._ledger.grant(len(content))
        if granted is None:
            return lay_beside(self._ledger, item)
        grant, offset = granted
        self._room[offset : offset + len(content)] = np.frombuffer(content, np.uint8)
        self._ledger.filled(grant)
        name, dtype, shape = self._name, view.dtype, view.shape
        return of_pool(Handle("shm", name, offset, len(content), dtype, shape, None, {}), grant)


def _close(owner: int, ledger: Ledger, segment: Segment) -> None:
    if os.getpid() == owner:  # a forked child has no part in the parent's pool
        ledger.close()
        segment.close()
