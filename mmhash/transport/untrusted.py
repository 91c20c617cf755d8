"""Tensors in segments of untrusted owners, read by pread() and never mapped by this process.

The owner can truncate the file at any time. Then reading a mapping ends the process (SIGBUS), and
pread() only returns fewer bytes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from mmhash.errors import TransportError
from mmhash.transport.feature import Feature
from mmhash.transport.handles import Handle, parse
from mmhash.transport.lease import Lease
from mmhash.transport.segments import open_segment
from mmhash.transport.shm_tensor import Acknowledgement
from mmhash.view import View

if TYPE_CHECKING:
    import torch

_BLOCK = 512  # the unit of st_blocks


class UntrustedTensor(Feature["_UntrustedBacking"]):
    """A tensor or plain bytes in shared memory, read by pread()."""

    @classmethod
    def open(cls, handle: object) -> Self:
        """Open a feature by its handle; nothing is opened before its bytes are read."""
        return cls(_UntrustedBacking(parse(handle, "shm")))

    @property
    def start(self) -> int:
        """The position of the first byte in the segment."""
        return self._backing.handle.offset + self._start

    @property
    def is_lent(self) -> bool:
        """True if its segment is a pool's, to which more features will be copied."""
        lease, name = self._backing.lease, self._backing.handle.name
        return lease is not None and lease.layout.is_pool_segment(name)

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Yield the segment's descriptor, checked before and after to be whole and leased."""
        handle, lease = self._backing.handle, self._backing.lease
        if lease is not None and self.is_lent:
            lease.check_range(handle.offset, handle.nbytes)
        file, before = open_segment(handle.name, os.O_RDONLY, handle.offset + handle.nbytes)
        try:
            # Reading a hole through a mapping would allocate memory.
            if before.st_blocks * _BLOCK < before.st_size:
                raise TransportError(f"segment {handle.name} has holes: its owner never wrote it")
            yield file
            after = os.fstat(file)
            if (before.st_size, before.st_blocks) != (after.st_size, after.st_blocks):
                raise TransportError(f"segment {handle.name} changed its size while it was read")
            if lease is not None:
                lease.check()
        finally:
            os.close(file)

    def verify(self) -> None:
        """Raise unless the segment exists and holds the bytes that the handle describes."""
        with self.reading():
            pass

    def read(self) -> bytes:
        """Return a copy of the bytes."""
        pieces, done = [], 0
        with self.reading() as file:
            while done < self.nbytes:
                piece = os.pread(file, self.nbytes - done, self.start + done)
                if not piece:
                    raise TransportError("the segment was truncated while it was read")
                pieces.append(piece)
                done += len(piece)
        return b"".join(pieces)

    def reconstruct(self, device: Any) -> "torch.Tensor":  # noqa: ARG002  (all devices)
        """Raise: only SharedTensor makes tensors, of trusted segments."""
        raise TransportError("a tensor in an untrusted segment can only be read: use SharedTensor")

    def __mmhash_view__(self) -> View:
        return View(self.kind, self.dtype, self.shape, memoryview(self.read()))


class _UntrustedBacking:
    """A handle and its lease, for a feature and all its slices."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.lease = None if handle.lease is None else Lease(handle.lease, 0)
        self._acknowledge = None if self.lease is None else Acknowledgement(self, self.lease)

    def close(self) -> None:
        if self._acknowledge is not None:
            self._acknowledge()
