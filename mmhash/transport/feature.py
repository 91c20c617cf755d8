"""The base of all features behind a handle. The shape is known; the bytes are opened when read."""

import os
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from mmhash.dtypes import ITEM_SIZE
from mmhash.errors import InputTypeError, InputValueError, TransportError
from mmhash.transport.handles import Handle
from mmhash.transport.lease import Lease
from mmhash.view import Kind, View

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


class Backing:
    """The memory behind a feature and all its slices, and the lease of a reader."""

    def __init__(self, handle: Handle, consumer: int | None) -> None:
        """`consumer` is None for the producer, which acknowledges nothing."""
        self.handle = handle
        self.lease = None if handle.lease is None else Lease(handle.lease, consumer or 0)
        self.is_closed = False
        self._acknowledge: Callable[[], object] | None = None
        if self.lease is not None and consumer is not None:  # also when `self` is collected
            self._acknowledge = weakref.finalize(self, _acknowledge, self.lease, os.getpid())

    def check_open(self) -> None:
        """Raise if the feature was closed here."""
        if self.is_closed:
            raise TransportError("the feature was closed")

    def close(self) -> None:
        """Release the memory."""
        self.is_closed = True
        if self._acknowledge is not None:
            self._acknowledge()


def _acknowledge(lease: Lease, opener: int) -> None:
    """Acknowledge, unless the pool was closed, or this process was forked from the opener."""
    if os.getpid() == opener:
        with suppress(TransportError):
            lease.acknowledge()


B = TypeVar("B", bound=Backing)


class Feature(ABC, Generic[B]):
    """A tensor or plain bytes behind a handle; slices share its memory."""

    def __init__(self, backing: B) -> None:
        self._backing = backing
        self._start = 0  # where this slice begins in the whole feature, in bytes
        self.shape = backing.handle.shape
        self.nbytes = backing.handle.nbytes

    @property
    def kind(self) -> Kind:
        """The kind that the feature's key covers."""
        return "tensor" if self._backing.handle.dtype else "bytes"

    @property
    def dtype(self) -> str:
        """The spec's name of the feature's dtype, empty for plain bytes."""
        return self._backing.handle.dtype

    def handle(self) -> dict[str, Any]:
        """Return a dict of valid JSON with which another process can open the feature."""
        whole = self._backing.handle
        part = whole._replace(
            offset=whole.offset + self._start,
            nbytes=self.nbytes,
            shape=self.shape,
        )
        return part.document()

    def __getitem__(self, index: Any) -> Self:
        """Return a slice along the first dimension longer than 1.

        Other slices are not contiguous.
        """
        cuts = index if isinstance(index, tuple) else (index,)
        if not all(isinstance(cut, slice) for cut in cuts):
            raise InputTypeError("a feature behind a handle takes only slices: use reconstruct()")
        if len(cuts) > len(self.shape):
            raise InputValueError(f"{len(cuts)} slices for {len(self.shape)} dimensions")
        shape, start = list(self.shape), self._start
        for dim, cut in enumerate(cuts):
            first, last, step = cut.indices(shape[dim])
            last = max(first, last)
            if step != 1:
                raise InputValueError("a feature behind a handle is sliced in steps of 1")
            if last - first == shape[dim]:
                continue
            if prod(shape[:dim]) != 1:
                raise InputValueError(
                    f"a slice along dim {dim} of {self.shape} is not contiguous: use reconstruct()"
                )
            start += first * prod(shape[dim + 1 :]) * ITEM_SIZE[self.dtype]
            shape[dim] = last - first
        part = type(self)(self._backing)
        part._start, part.shape = start, tuple(shape)
        part.nbytes = prod(shape) * ITEM_SIZE[self.dtype]
        return part

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).open, (self.handle(),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype or 'bytes'}, {self.shape}, {self.nbytes} bytes)"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    @abstractmethod
    def open(cls, handle: object) -> Self:
        """Open a feature by its handle; nothing is mapped before its bytes are read."""

    def close(self) -> None:
        """Release the feature, the whole it is a slice of, and all other slices; idempotent."""
        self._backing.close()

    @abstractmethod
    def reconstruct(self, device: Any) -> "torch.Tensor":
        """Return the feature as a torch tensor on a device of this process."""

    @abstractmethod
    def __mmhash_view__(self) -> View: ...
