"""Keys of a clip that grows: each frame and sample is hashed once.

Frames and samples are only appended. A window that is full is closed, and keeps its key; only the
tail changes.
"""

from typing import Any

import numpy as np

from mmhash.arguments import check_int
from mmhash.cpu import Hasher
from mmhash.digest import Digest
from mmhash.errors import InputTypeError, InputValueError
from mmhash.framing import frame
from mmhash.hashing import key

Array = np.ndarray[Any, Any]


class _KeyList:
    """The key of a list of items (section 5.4 of the spec) that grows."""

    def __init__(self, algorithm: str, tenant: bytes | None) -> None:
        self._hasher = Hasher(algorithm)
        self._tenant = tenant
        self._count = 0

    def append(self, item: Digest) -> None:
        self._hasher.update(item.bytes)
        self._count += 1

    def key(self, tail: Digest | None = None) -> Digest:
        hasher, count = self._hasher.copy(), self._count
        if tail is not None:
            hasher.update(tail.bytes)
            count += 1
        content = Digest(self._hasher.name, hasher.digest())
        return frame("list", "", (count,), content, tenant=self._tenant)


class GrowingVideo:
    """The keys of a video whose frames arrive one by one, in windows of `window` frames."""

    def __init__(
        self, window: int = 16, *, algorithm: str = "blake3", tenant: bytes | None = None
    ) -> None:
        self._window = check_int("window", window, 1)
        self._algorithm, self._tenant = algorithm, tenant
        self._all = _KeyList(algorithm, tenant)
        self._tail = _KeyList(algorithm, tenant)
        self.frames: list[Digest] = []
        """The key of each frame."""
        self.windows: list[Digest] = []
        """The key of each closed window: that of the list of its frames."""

    def append(self, picture: Any) -> Digest:
        """Hash the next frame, and return its key."""
        item = key(picture, algorithm=self._algorithm, tenant=self._tenant)
        self.frames.append(item)
        self._all.append(item)
        self._tail.append(item)
        if len(self.frames) % self._window == 0:
            self.windows.append(self._tail.key())
            self._tail = _KeyList(self._algorithm, self._tenant)
        return item

    @property
    def tail(self) -> Digest | None:
        """The key of the open window; None if it is empty."""
        return self._tail.key() if len(self.frames) % self._window else None

    def key(self) -> Digest:
        """Return the key of all frames so far: that of their list, regardless of the windows."""
        return self._all.key()


class GrowingAudio:
    """The keys of samples that arrive in pieces of any length, in windows of `window` samples.

    A piece is an array of samples by channels; the pieces do not count.
    """

    def __init__(
        self, window: int, *, algorithm: str = "blake3", tenant: bytes | None = None
    ) -> None:
        self._window = check_int("window", window, 1)
        self._algorithm, self._tenant = algorithm, tenant
        self._all = _KeyList(algorithm, tenant)
        self._tail = Hasher(algorithm)
        self._open = 0
        self._closed: list[Digest] = []
        self._dtype: np.dtype[Any] | None = None
        self._channels = 0
        self.windows: list[Digest] = []
        """The key of each closed window: that of the tensor of its samples."""

    def append(self, samples: Array) -> None:
        """Hash the next samples."""
        samples = self._check(samples)
        while len(samples):
            piece = samples[: self._window - self._open]
            self._tail.update(np.ascontiguousarray(piece))
            self._open += len(piece)
            samples = samples[len(piece) :]
            if self._open == self._window:
                self._closed.append(Digest(self._tail.name, self._tail.digest()))
                self.windows.append(self._tail_key())
                self._all.append(self.windows[-1])
                self._tail, self._open = Hasher(self._algorithm), 0

    @property
    def tail(self) -> Digest | None:
        """The key of the open window; None if it is empty."""
        return self._tail_key() if self._open else None

    def contents(self) -> list[tuple[Digest, tuple[int, int]]]:
        """Return the digest and the shape of each window, and of the tail if there is one."""
        closed = [(digest, (self._window, self._channels)) for digest in self._closed]
        if not self._open:
            return closed
        tail = Digest(self._tail.name, self._tail.digest())
        return [*closed, (tail, (self._open, self._channels))]

    def key(self) -> Digest:
        """Return the key of all samples so far: that of the list of their windows."""
        return self._all.key(self.tail)

    def _tail_key(self) -> Digest:
        content = Digest(self._tail.name, self._tail.digest())
        shape = (self._open, self._channels)
        return frame("tensor", str(self._dtype), shape, content, tenant=self._tenant)

    def _check(self, samples: Array) -> Array:
        if not isinstance(samples, np.ndarray) or samples.ndim != 2:
            raise InputTypeError("samples are a numpy array of samples by channels")
        if samples.dtype.name not in {"float32", "int16"}:
            raise InputTypeError(f"samples are float32 or int16, not {samples.dtype}")
        samples = samples.astype(samples.dtype.newbyteorder("<"), copy=False)
        if self._dtype is None:
            self._dtype, self._channels = samples.dtype, samples.shape[1]
        if (samples.dtype, samples.shape[1]) != (self._dtype, self._channels):
            raise InputValueError("all samples have the dtype and the channels of the first")
        return samples
