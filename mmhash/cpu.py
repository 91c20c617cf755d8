"""Digests computed on the CPU, of a buffer or of a stream."""

import os
from collections.abc import Callable
from functools import cache
from typing import Self

from mmhash.algorithms import ALGORITHM_SPECS, Algorithm, check_algorithm
from mmhash.arguments import check_int
from mmhash.digest import Digest, unchecked_digest
from mmhash.forks import check_not_forked
from mmhash.states import FlatBuffer, cpu_count

__all__ = ["Hasher", "cpu_count", "hash_bytes", "hash_raw"]

# Below this size, a second thread costs more than it gains.
PARALLEL_FROM = 1 << 20


def hash_bytes(data: memoryview, algorithm: Algorithm, threads: int | None = None) -> Digest:
    """Return the digest of a flat buffer, read in place."""
    return unchecked_digest(algorithm, hash_raw(data, algorithm, threads))


def hash_raw(data: FlatBuffer, algorithm: Algorithm, threads: int | None = None) -> bytes:
    """Return the bytes of a flat buffer's digest."""
    spec = ALGORITHM_SPECS[algorithm]
    if threads is None and len(data) < PARALLEL_FROM:
        return spec.hash_short(data)
    state = spec.new_state(_check_threads(threads, len(data)))
    state.update(data)
    return state.digest()


def _check_threads(threads: int | None, nbytes: int) -> int:
    if threads is None:
        return 1 if nbytes < PARALLEL_FROM else cpu_count()
    return check_int("threads", threads, 1)


@cache
def _reader() -> Callable[[object], memoryview]:
    """Return a function that gets the flat bytes of any input."""
    from mmhash.view import bytes_of  # noqa: PLC0415  (numpy doubles the start of bulk's workers)

    return bytes_of


class Hasher:
    """A digest of data that arrives in pieces, with the methods of hashlib's hashes.

    A hasher with several threads belongs to the process that made it: threads do not survive a
    fork.

    Args:
        algorithm: `"blake3"` or `"xxh3"`.
        threads: The number of threads that an update may use.

    >>> hasher = mmhash.Hasher()
    >>> hasher.update(b"ab").update(b"c").hexdigest() == mmhash.digest(b"abc").hex()
    True
    >>> mmhash.Hasher("xxh3").digest_size
    16
    """

    def __init__(self, algorithm: Algorithm = "blake3", *, threads: int = 1) -> None:
        self.name = check_algorithm(algorithm)
        self._threads = _check_threads(threads, 0)
        self._owner = os.getpid()
        self._state = ALGORITHM_SPECS[self.name].new_state(self._threads)

    def __repr__(self) -> str:
        return f"<Hasher {self.name}>"

    @property
    def digest_size(self) -> int:
        """The length of `digest()` in bytes."""
        return ALGORITHM_SPECS[self.name].digest_size

    def update(self, data: object) -> Self:
        """Add the bytes of anything that `mmhash.digest` accepts; return the hasher itself."""
        content = data if type(data) is bytes else _reader()(data)
        if self._threads > 1:
            check_not_forked("Hasher of several threads", self._owner)
        self._state.update(content)
        return self

    def digest(self) -> bytes:
        """Return the digest of all data so far; more may follow."""
        return self._state.digest()

    def hexdigest(self) -> str:
        """Return the digest of all data so far, as hex."""
        return self.digest().hex()

    def copy(self) -> "Hasher":
        """Return an independent hasher with the same state."""
        twin = Hasher.__new__(Hasher)
        twin.name = self.name
        twin._threads = self._threads
        twin._owner = self._owner
        twin._state = self._state.copy()
        return twin
