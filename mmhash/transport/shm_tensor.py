"""A tensor in shared memory: one process writes it, the others of the host read it in place."""

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mmhash.errors import DeviceError, InputTypeError, TransportError
from mmhash.transport.feature import Feature
from mmhash.transport.fork import Process, current_process
from mmhash.transport.handles import Grant, Handle, parse
from mmhash.transport.ledger import Claim, Lease, Ledger
from mmhash.transport.segments import Segment, lent, map_private
from mmhash.view import View, view_of

if TYPE_CHECKING:
    import torch


class SharedTensor(Feature["_Memory"]):
    """A tensor or plain bytes in shared memory: created by its owner, opened by its readers."""

    @classmethod
    def create(cls, item: Any) -> Self:
        """Copy an array, a tensor or bytes; they are there until close(), or this object's end."""
        segment, handle = create_segment(item)
        return cls(_Memory(handle, segment=segment))

    @classmethod
    def open(cls, handle: object, *, consumer: int = 0) -> Self:
        """A feature by its handle; nothing is mapped before its bytes are read.

        `consumer` is this process's number among those that a pool's lease was made for.
        """
        return cls(_Memory(parse(handle, "shm"), consumer=consumer))

    @property
    def view(self) -> memoryview:
        """The bytes, in place, read-only; of a pool, for as long as its lease stands."""
        return self._bytes().toreadonly()

    def array(self) -> np.ndarray[Any, Any]:
        """The tensor, in place, as a read-only numpy array; of a pool, as `view`."""
        if not self.dtype:
            raise InputTypeError("plain bytes are no array: read them by .view")
        return np.frombuffer(self.view, _numpy_dtype(self.dtype)).reshape(self.shape)

    def tensor(self) -> "torch.Tensor":
        """The tensor, in place, or of a pool a copy; what is written to it stays here."""
        import torch  # noqa: PLC0415  (a tensor is asked for)

        if not self.dtype:
            raise InputTypeError("plain bytes are no tensor: read them by .view")
        dtype = getattr(torch, self.dtype, None)
        if dtype is None:
            raise DeviceError(f"torch {torch.__version__} has no {self.dtype}")
        if not self.nbytes:
            return torch.empty(self.shape, dtype=dtype)
        content: memoryview | bytearray = self._bytes()
        if self._memory.is_lent:
            content = bytearray(content)
            self._memory.check_lease()
        return torch.frombuffer(content, dtype=torch.uint8).view(dtype).reshape(self.shape)

    def reconstruct(self, device: Any = "cpu") -> "torch.Tensor":
        """A torch tensor of it: on the CPU in place, elsewhere a copy."""
        return self.tensor().to(device)

    def __mmhash_view__(self) -> View:
        content = self._bytes()
        check_lease = self._memory.check_lease if self._memory.is_lent else None
        return View(self.kind, self.dtype, self.shape, content, check_lease=check_lease)

    def _bytes(self) -> memoryview:
        return self._memory.bytes()[self._start : self._start + self.nbytes]


class _Memory:
    """The segment, mapped once for a feature and all its slices."""

    def __init__(
        self, handle: Handle, *, segment: Segment | None = None, consumer: int | None = None
    ) -> None:
        self.handle = handle
        self._segment = segment
        self._mapped: memoryview | None = None
        self._closed = False
        self._lease = None if handle.lease is None else Lease(handle.lease, consumer or 0)
        self._acknowledge = None
        if self._lease is not None and consumer is not None:  # and not the producer
            self._acknowledge = Acknowledgement(self, self._lease)

    def bytes(self) -> memoryview:
        # Without a lock: a forked child would inherit it held. Two threads may both map.
        mapped = self._mapped
        if mapped is None:
            name, start, nbytes = self.handle.name, self.handle.offset, self.handle.nbytes
            if self._lease is not None and self.is_lent:
                self._lease.check_range(start, nbytes)
                mapped = lent.see(name, start, nbytes)
            else:
                mapped = map_private(name, start, nbytes)
            if len(mapped) != nbytes:
                raise TransportError(f"segment {name} has fewer bytes than its handle speaks of")
            self._mapped = mapped
        if self._closed:
            self._mapped = None
            raise TransportError("the feature was closed")
        return mapped

    @property
    def is_lent(self) -> bool:
        """Whether it lies in a pool's segment, where another feature comes after it."""
        return self._lease is not None and self._lease.layout.lends(self.handle.name)

    def check_lease(self) -> None:
        """Raise if another feature may be there by now."""
        if self._lease is not None:
            self._lease.check()

    def close(self) -> None:
        self._closed = True
        self._mapped = None  # unmapped when no array or tensor looks at it any more
        if self._segment is not None:
            self._segment.close()
        if self._acknowledge is not None:
            self._acknowledge()


class Acknowledgement:
    """Acknowledges a lease when it is called, or when its owner is gone."""

    def __init__(self, owner: object, lease: Lease) -> None:
        self._lease = lease
        self._opener = current_process()
        self._finalizer = weakref.finalize(owner, _acknowledge, lease, self._opener)

    def __call__(self) -> None:
        """Acknowledge; more often changes nothing."""
        if self._finalizer.alive:
            # Not by the finalizer, which runs once: it may be interrupted.
            _acknowledge(self._lease, self._opener)
            self._finalizer.detach()


def create_segment(item: Any) -> tuple[Segment, Handle]:
    """Copy an item into a segment of its own."""
    view = shareable(item)
    content = view.on_host()
    segment = Segment(len(content))
    segment.fill(content)
    return segment, Handle("shm", segment.name, 0, len(content), view.dtype, view.shape, None, {})


def allocate_overflow(ledger: Ledger, item: Any, claim: Claim) -> SharedTensor:
    """Copy an item for which a pool has no room into a segment that goes when its lease does."""
    segment, handle = create_segment(item)
    granted = ledger.grant(handle.nbytes, segment, claim=claim)
    if granted is None:
        segment.close()
        raise TransportError("the pool has as many leases as it can: nobody acknowledges them")
    return of_pool(handle, granted[0])


def shareable(item: Any) -> View:
    """The view of a tensor or of bytes, which shared memory can hold."""
    view = view_of(item)
    if view.kind not in {"bytes", "tensor"}:
        raise InputTypeError(f"shared memory holds a tensor or bytes, no {view.kind}: convert it")
    return view


def of_pool(handle: Handle, lease: Grant) -> SharedTensor:
    """The producer's side of a tensor that found no room in a pool, which owns the segment."""
    return SharedTensor(_Memory(handle._replace(lease=lease)))


def _acknowledge(lease: Lease, opener: Process) -> None:
    """Acknowledge, unless the pool is gone, or this is a child that the opener forked."""
    if current_process() == opener:
        with suppress(TransportError):
            lease.acknowledge()


def _numpy_dtype(name: str) -> "np.dtype[Any]":
    with suppress(TypeError):
        return np.dtype(name)
    try:
        import ml_dtypes  # noqa: PLC0415  (numpy alone does not know it)

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError, TypeError):
        raise InputTypeError(f"numpy has no {name} here: read it by .tensor() or .view") from None
    return found
