"""The digests of the windows of a clip, whose samples are decoded in pieces."""

from typing import Any

import numpy as np

from mmhash.cpu import Hasher
from mmhash.digest import Digest


class WindowHasher:
    """Hashes samples in pieces of any length, cut into windows of `window` samples; 0 means one."""

    def __init__(self, window: int, algorithm: str) -> None:
        self._window = window or 1 << 62
        self._algorithm = algorithm
        self._hasher = Hasher(algorithm)
        self._channels = self._open = 0
        self.closed: list[Digest] = []
        """The digest of each full window."""

    def append(self, samples: np.ndarray[Any, Any]) -> None:
        """Hash the next samples: an array of samples by channels."""
        self._channels = samples.shape[1]
        while len(samples):
            piece = samples[: self._window - self._open]
            self._hasher.update(np.ascontiguousarray(piece))
            self._open += len(piece)
            samples = samples[len(piece) :]
            if self._open == self._window:
                self.closed.append(self._digest())
                self._hasher, self._open = Hasher(self._algorithm), 0

    def contents(self) -> list[tuple[Digest, tuple[int, int]]]:
        """Return the digest and shape of each window; the last window may be shorter."""
        closed = [(digest, (self._window, self._channels)) for digest in self.closed]
        last = [(self._digest(), (self._open, self._channels))] if self._open else []
        return closed + last

    def _digest(self) -> Digest:
        return Digest(self._hasher.name, self._hasher.digest())
