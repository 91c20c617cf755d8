"""Hashing of a stream whose pieces have any length, as fast as pieces that suit the hash."""

from mmhash import Digest
from mmhash.algorithms import ALGORITHM_SPECS, Algorithm

# BLAKE3 is fastest if each piece begins and ends at a multiple of a power of two of chunks, which
# pieces as a socket returns them do not.
_ALIGNMENT = 64 * 1024


class AlignedHasher:
    """A hasher that receives whole groups of chunks, and buffers the remainder."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        # Not `mmhash.Hasher`, which takes any data: finding out what each piece is took 9 % of the
        # server's time.
        self._state = ALGORITHM_SPECS[algorithm].new_state(1)
        self._remainder = bytearray()
        self.length = 0

    def update(self, piece: bytes | memoryview) -> None:
        """Hash the next piece."""
        self.length += len(piece)
        view = memoryview(piece)
        if self._remainder:
            missing = _ALIGNMENT - len(self._remainder)
            self._remainder += view[:missing]
            view = view[missing:]
            if len(self._remainder) < _ALIGNMENT:
                return
            self._state.update(self._remainder)
            self._remainder = bytearray()
        aligned = len(view) - len(view) % _ALIGNMENT
        if aligned:
            self._state.update(view[:aligned])
        self._remainder += view[aligned:]

    def digest(self) -> Digest:
        """Return the digest of all pieces; there must be no update after it."""
        if self._remainder:
            self._state.update(self._remainder)
        return Digest(self._algorithm, self._state.digest())
