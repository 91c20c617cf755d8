"""A tensor in shared memory: one process writes it, and others on the host read it in place."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mmhash.errors import DeviceError, InputTypeError, TransportError
from mmhash.transport.feature import Backing, Feature
from mmhash.transport.handles import Grant, Handle, parse
from mmhash.transport.segments import Segment, map_private, view_pool
from mmhash.view import View, view_of

if TYPE_CHECKING:
    import torch


class SharedTensor(Feature["_SegmentBacking"]):
    """A tensor or plain bytes in shared memory: created by its owner, opened by readers."""

    @classmethod
    def create(cls, item: Any) -> Self:
        """Copy an array, a tensor or bytes to a new segment, which close() removes."""
        view = shareable(item)
        content = view.on_host()
        segment = Segment(len(content))
        segment.fill(content)
        handle = Handle("shm", segment.name, 0, len(content), view.dtype, view.shape, None)
        return cls(_SegmentBacking(handle, segment=segment))

    @classmethod
    def open(cls, handle: object, *, consumer: int = 0) -> Self:
        """Open a feature by its handle; nothing is mapped before its bytes are read.

        `consumer` is this process's number among the pool's consumers.
        """
        return cls(_SegmentBacking(parse(handle, "shm"), consumer=consumer))

    @property
    def view(self) -> memoryview:
        """The bytes in place, read-only; in a pool they are valid until the lease ends."""
        return self._bytes().toreadonly()

    def array(self) -> np.ndarray[Any, Any]:
        """Return the tensor in place as a read-only numpy array; valid as long as `view`."""
        if not self.dtype:
            raise InputTypeError("plain bytes are not an array: read them by .view")
        return np.frombuffer(self.view, _numpy_dtype(self.dtype)).reshape(self.shape)

    def reconstruct(self, device: Any = "cpu") -> "torch.Tensor":
        """Return a torch tensor: in place on the CPU; a copy from a pool, or on another device.

        Writes to the tensor stay in this process.
        """
        import torch  # noqa: PLC0415  (only for a tensor)

        if not self.dtype:
            raise InputTypeError("plain bytes are not a tensor: read them by .view")
        dtype = getattr(torch, self.dtype, None)
        if dtype is None:
            raise DeviceError(f"torch {torch.__version__} has no {self.dtype}")
        if not self.nbytes:
            return torch.empty(self.shape, dtype=dtype, device=device)
        content: memoryview | bytearray = self._bytes()
        if self._backing.lease is not None:  # another feature can replace this one
            content = bytearray(content)
            self._backing.lease.check()
        flat = torch.frombuffer(content, dtype=torch.uint8).view(dtype)
        return flat.reshape(self.shape).to(device)

    def __mmhash_view__(self) -> View:
        content = self._bytes()
        lease = self._backing.lease
        check_lease = None if lease is None else lease.check
        return View(self.kind, self.dtype, self.shape, content, check_lease=check_lease)

    def _bytes(self) -> memoryview:
        return self._backing.bytes()[self._start : self._start + self.nbytes]


class _SegmentBacking(Backing):
    """A segment, mapped once for a feature and all its slices."""

    def __init__(
        self, handle: Handle, *, segment: Segment | None = None, consumer: int | None = None
    ) -> None:
        super().__init__(handle, consumer)
        self._segment = segment
        self._mapped: memoryview | None = None

    def bytes(self) -> memoryview:
        # No lock: two threads may both map the segment.
        mapped = self._mapped
        if mapped is None:
            name, start, nbytes = self.handle.name, self.handle.offset, self.handle.nbytes
            if self.lease is not None:
                self.lease.check_range(start, nbytes)
                mapped = view_pool(name, start, nbytes)
            else:
                mapped = map_private(name, start, nbytes)
            if len(mapped) != nbytes:
                raise TransportError(f"segment {name} has fewer bytes than its handle needs")
            self._mapped = mapped
        if self.is_closed:
            self._mapped = None
        self.check_open()
        return mapped

    def close(self) -> None:
        super().close()
        self._mapped = None  # unmapped when no array or tensor uses it any more
        if self._segment is not None:
            self._segment.close()


def shareable(item: Any) -> View:
    """Return a view of a tensor or bytes; raise for items that shared memory cannot hold."""
    view = view_of(item)
    if view.kind not in {"bytes", "tensor"}:
        raise InputTypeError(
            f"shared memory can hold a tensor or bytes, not this {view.kind}: convert it"
        )
    return view


def leased_tensor(handle: Handle, lease: Grant) -> SharedTensor:
    """Return the producer's side of a lease; the pool owns the segment."""
    return SharedTensor(_SegmentBacking(handle._replace(lease=lease)))


def _numpy_dtype(name: str) -> "np.dtype[Any]":
    with suppress(TypeError):
        return np.dtype(name)
    try:
        import ml_dtypes  # noqa: PLC0415  (only for dtypes that numpy does not have)

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError, TypeError):
        raise InputTypeError(
            f"numpy has no {name} here: read it by .reconstruct() or .view"
        ) from None
    return dtype
