"""What all that lies behind a handle shares: its shape is known, its bytes are opened when read."""

from abc import ABC, abstractmethod
from math import prod
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from mmhash.digest import Digest
from mmhash.errors import InputTypeError, InputValueError
from mmhash.transport.handles import MAX_DIGESTS, Handle
from mmhash.view import ITEM_SIZE, Kind, View

if TYPE_CHECKING:
    import torch


class Memory(Protocol):
    """Where a feature lies, for it and all its slices."""

    handle: Handle

    def close(self) -> None:
        """Be done with it."""


M = TypeVar("M", bound=Memory)


class Feature(ABC, Generic[M]):
    """A tensor, or plain bytes, that lies elsewhere; slices of it share the memory."""

    def __init__(self, memory: M) -> None:
        self._memory = memory
        self._start = 0  # from the first byte of the whole of which this may be a slice
        self.shape = memory.handle.shape
        self.nbytes = memory.handle.nbytes

    @property
    def kind(self) -> Kind:
        """What a key calls it."""
        return "tensor" if self._memory.handle.dtype else "bytes"

    @property
    def dtype(self) -> str:
        """The spec's name of its dtype, empty for plain bytes."""
        return self._memory.handle.dtype

    def handle(self) -> dict[str, Any]:
        """What a process opens it by: a dict that JSON can hold."""
        whole = self._memory.handle
        end = self._start + self.nbytes
        digests = {
            (start - self._start, nbytes, algorithm): digest
            for (start, nbytes, algorithm), digest in whole.digests.items()
            if self._start <= start and start + nbytes <= end
        }
        mine = whole._replace(
            offset=whole.offset + self._start,
            nbytes=self.nbytes,
            shape=self.shape,
            digests=digests,
        )
        return mine.document()

    def attach_digest(self, digest: Digest) -> None:
        """Let the handle carry a digest of these bytes, so that nobody computes it again."""
        if len(self._memory.handle.digests) >= MAX_DIGESTS:
            raise InputValueError(f"a handle carries at most {MAX_DIGESTS} digests")
        self._memory.handle.digests[self._start, self.nbytes, digest.algorithm] = digest

    def __getitem__(self, index: Any) -> Self:
        """A slice along the first dimension longer than 1, for others are not in one piece."""
        cuts = index if isinstance(index, tuple) else (index,)
        if not all(isinstance(cut, slice) for cut in cuts):
            raise InputTypeError("a feature behind a handle is cut by slices: open it for more")
        if len(cuts) > len(self.shape):
            raise InputValueError(f"{len(cuts)} slices for {len(self.shape)} dimensions")
        shape, start = list(self.shape), self._start
        for dim, cut in enumerate(cuts):
            first, last, step = cut.indices(shape[dim])
            last = max(first, last)
            if step != 1:
                raise InputValueError("a feature behind a handle is cut in steps of 1")
            if last - first == shape[dim]:
                continue
            if prod(shape[:dim]) != 1:
                raise InputValueError(
                    f"a cut along dim {dim} of {self.shape} is not in one piece: open it first"
                )
            start += first * prod(shape[dim + 1 :]) * ITEM_SIZE[self.dtype]
            shape[dim] = last - first
        part = type(self)(self._memory)
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

    def __mmhash_digest__(self, algorithm: str) -> Digest | None:
        """The digest that the handle carries of these bytes."""
        return self._memory.handle.digests.get((self._start, self.nbytes, algorithm))

    @classmethod
    @abstractmethod
    def open(cls, handle: object) -> Self:
        """A feature by its handle; nothing is mapped before its bytes are read."""

    def close(self) -> None:
        """Be done with it, and with all of which it is a slice; more often changes nothing."""
        self._memory.close()

    @abstractmethod
    def reconstruct(self, device: Any) -> "torch.Tensor":
        """A torch tensor of it on a device of this process."""

    @abstractmethod
    def __mmhash_view__(self) -> View: ...
