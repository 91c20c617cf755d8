"""One stretch of shared memory, in which features travel to other processes one after the other.

New pages cost more than a hash: 20 MiB take 10 ms and more to be laid down in a segment of their
own, and 1 ms in a pool, whose pages are there; and its readers keep their mapping of it.
"""

import threading
import weakref
from typing import Any, NoReturn

import numpy as np

from mmhash.errors import InputTypeError, TransportError
from mmhash.transport.arguments import check_pool
from mmhash.transport.fork import Process, current_process, watch_forks
from mmhash.transport.handles import Handle
from mmhash.transport.ledger import Claim, Ledger
from mmhash.transport.segments import Segment, map_shared, sweep
from mmhash.transport.shm_tensor import SharedTensor, allocate_overflow, of_pool, shareable


class SharedPool:
    """Shared memory of `nbytes`, leased to features in slices; a process has one, or few.

    Of each lease every one of `consumers` processes must say that it is done, by closing what it
    opened; a lease not ended after `timeout` seconds is taken back when there is need of room.
    A forked child that leases gets memory of its own, as much again: the parent's is the parent's.
    """

    def __init__(self, nbytes: int, *, consumers: int = 1, timeout: float = 60.0) -> None:
        check_pool(nbytes, consumers, timeout)
        self.nbytes = nbytes
        self._consumers = consumers
        self._timeout = timeout
        self._replacing = threading.RLock()
        self._memory: _Memory | None = _Memory(nbytes, consumers, timeout)
        watch_forks(self)

    def lease(self, item: Any) -> SharedTensor:
        """Copy an array, a tensor or bytes into a slice, or without room beside the pool."""
        view = shareable(item)
        content = view.on_host()
        memory = self._own()
        ledger, claim = memory.ledger, Claim()
        try:
            granted = ledger.grant(len(content), claim=claim)
            if granted is None:
                return allocate_overflow(ledger, item, claim)
            grant, offset = granted
            memory.room[offset : offset + len(content)] = np.frombuffer(content, np.uint8)
            name, dtype, shape = memory.name, view.dtype, view.shape
            handle = Handle("shm", name, offset, len(content), dtype, shape, None, {})
            feature = of_pool(handle, grant)
            ledger.filled(grant)
            return feature  # noqa: TRY300  (until it is the caller's, an interruption ends the lease)
        except BaseException:
            ledger.withdraw(claim)
            raise

    def close(self) -> None:
        """Give the memory back; more often changes nothing. A forked child gives back its own."""
        memory = self._memory
        if memory is not None:
            memory.close()
            self._memory = None

    def after_fork(self) -> None:
        """Use a new lock: the thread that held the old one is not here."""
        self._replacing = threading.RLock()

    def __reduce__(self) -> NoReturn:
        raise InputTypeError("a pool is not sent to another process: send its features' handles")

    @property
    def _ledger(self) -> Ledger:
        return self._own().ledger

    def _own(self) -> "_Memory":
        memory = self._memory
        if memory is not None and memory.owner != current_process():
            with self._replacing:
                memory = self._memory
                if memory is not None and memory.owner != current_process():
                    sweep()  # children that were terminated leave their memory behind
                    self._memory = memory = _Memory(self.nbytes, self._consumers, self._timeout)
        if memory is None:
            raise TransportError("the pool was closed")
        return memory


class _Memory:
    """A pool's memory and its ledger, of one process."""

    def __init__(self, nbytes: int, consumers: int, timeout: float) -> None:
        self.owner = current_process()
        segment = Segment(nbytes)
        self.name = segment.name
        self.room = np.frombuffer(map_shared(segment.name, nbytes, nbytes), np.uint8)
        self.ledger = Ledger(nbytes, segment.name.encode(), consumers=consumers, timeout=timeout)
        self._owned = (self.owner, self.ledger, segment)
        self._finalizer = weakref.finalize(self, _close, *self._owned)

    def close(self) -> None:
        _close(*self._owned)  # not by the finalizer, which runs once: it may be interrupted
        self._finalizer.detach()


def _close(owner: Process, ledger: Ledger, segment: Segment) -> None:
    if current_process() == owner:  # a forked child has no part in the parent's memory
        ledger.close()
        segment.close()
