"""A pool of shared memory, leased in slices to features for other processes.

New pages cost more than a hash. A pool's pages already exist, and readers keep its mapping.
"""

import os
import weakref
from typing import Any, NoReturn

import numpy as np

from mmhash.arguments import check_int
from mmhash.errors import InputTypeError, TransportError
from mmhash.forks import check_not_forked
from mmhash.transport.handles import Handle
from mmhash.transport.ledger import Ledger
from mmhash.transport.segments import Segment, map_shared
from mmhash.transport.shm_tensor import SharedTensor, leased_tensor, shareable


class SharedPool:
    """Shared memory of `nbytes`, leased to features in slices; a process needs one or a few.

    A lease ends once each of `consumers` processes has closed the feature that it opened. A lease
    older than `timeout_s` is revoked when the pool needs its room. Only the process that made the
    pool leases from it; a forked child must make its own.
    """

    def __init__(self, nbytes: int, *, consumers: int = 1, timeout_s: float = 60.0) -> None:
        self.nbytes = check_int("nbytes", nbytes, 1)
        self._segment: _PoolSegment | None = _PoolSegment(nbytes, consumers, timeout_s)

    def lease(self, item: Any) -> SharedTensor:
        """Copy an array, a tensor or bytes into a slice; without room, raise a TransportError."""
        view = shareable(item)
        content = view.on_host()
        segment = self._own_segment()
        grant, offset = segment.ledger.grant(len(content))
        try:
            segment.content[offset : offset + len(content)] = np.frombuffer(content, np.uint8)
        except BaseException:
            segment.ledger.withdraw(grant)
            raise
        segment.ledger.filled(grant)
        name, dtype, shape = segment.name, view.dtype, view.shape
        return leased_tensor(Handle("shm", name, offset, len(content), dtype, shape, None), grant)

    def close(self) -> None:
        """Free the memory; idempotent. A forked child leaves the memory to its parent."""
        segment = self._segment
        if segment is not None:
            segment.close()
            self._segment = None

    def __reduce__(self) -> NoReturn:
        raise InputTypeError("a pool is not sent to another process: send its features' handles")

    @property
    def _ledger(self) -> Ledger:
        return self._own_segment().ledger

    def _own_segment(self) -> "_PoolSegment":
        segment = self._segment
        if segment is None:
            raise TransportError("the pool was closed")
        check_not_forked("SharedPool", segment.owner)
        return segment


class _PoolSegment:
    """The segment and the ledger of a pool, in one process."""

    def __init__(self, nbytes: int, consumers: int, timeout_s: float) -> None:
        self.owner = os.getpid()
        segment = Segment(nbytes)
        self.name = segment.name
        self.content = np.frombuffer(map_shared(segment.name), np.uint8)
        self.ledger = Ledger(
            nbytes, segment.name.encode(), consumers=consumers, timeout_s=timeout_s
        )
        self.close = weakref.finalize(self, _close, self.owner, self.ledger, segment)


def _close(owner: int, ledger: Ledger, segment: Segment) -> None:
    if os.getpid() == owner:  # a forked child must not touch the parent's memory
        ledger.close()
        segment.close()
