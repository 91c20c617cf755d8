"""Digests of a buffer or a stream, computed on the CPU."""

from typing import Self

from mmhash.algorithms import ALGORITHM_SPECS, Algorithm, check_algorithm
from mmhash.arguments import check_int
from mmhash.digest import Digest, unchecked_digest
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
    state = spec.new_state(cpu_count() if threads is None else check_int("threads", threads, 1))
    state.update(data)
    return state.digest()


class Hasher:
    """A digest of data that arrives in pieces, with the methods of hashlib's hashes.

    Args:
        algorithm: `"blake3"` or `"xxh3"`.

    >>> hasher = mmhash.Hasher()
    >>> hasher.update(b"ab").update(b"c").hexdigest() == mmhash.digest(b"abc").hex()
    True
    >>> mmhash.Hasher("xxh3").digest_size
    16
    """

    def __init__(self, algorithm: Algorithm = "blake3") -> None:
        self.name = check_algorithm(algorithm)
        self._state = ALGORITHM_SPECS[self.name].new_state(1)

    def __repr__(self) -> str:
        return f"<Hasher {self.name}>"

    @property
    def digest_size(self) -> int:
        """The length of `digest()` in bytes."""
        return ALGORITHM_SPECS[self.name].digest_size

    def update(self, data: object) -> Self:
        """Add the bytes of anything that `mmhash.digest` accepts; return the hasher itself."""
        from mmhash.view import bytes_of  # noqa: PLC0415  (numpy doubles the start of bulk)

        self._state.update(data if type(data) is bytes else bytes_of(data))
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
        twin._state = self._state.copy()
        return twin
