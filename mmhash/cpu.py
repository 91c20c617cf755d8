"""Both algorithms on the CPU, through the blake3 and xxhash packages.

Neither holds the GIL while it reads a large buffer.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Protocol, Self

from blake3 import blake3
from xxhash import xxh3_128, xxh3_128_digest

from mmhash.digest import DIGEST_SIZE, Algorithm, Digest, check_algorithm
from mmhash.errors import InputTypeError, InputValueError
from mmhash.view import bytes_of

# The xxh3 tree (docs/spec.md). Smaller leaves suit a GPU, larger ones a CPU: one thread has, at
# 20 MiB and at 512 MiB, 0.86 and 0.76 of the speed of one XXH3-128 over all with leaves of 64 KiB,
# 0.87 and 0.84 with 128 KiB, 0.91 and 0.92 with 256 KiB.
XXH3_LEAF = 256 * 1024
XXH3_ROOT_SEED = int.from_bytes(b"mmh-root", "big")

# BLAKE3 hashes a chunk in one piece: no other thread takes part in an update of one.
BLAKE3_CHUNK = 1024

# The time of this process's control group, as a container sees it: a quota and a period, or max.
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")

# Below this a second thread costs more than it gives.
PARALLEL_FROM = 1 << 20
# XXH3 reads as fast as memory gives, so a thread needs this much to be worth waking: two threads
# took 5.0 times as long as one at 1 MiB, 1.2 at 20 MiB, 1.06 at 64 MiB and 0.73 at 128 MiB.
XXH3_SHARE = 32 << 20


class _State(Protocol):
    """An algorithm between its first byte and its value."""

    def update(self, data: memoryview, /) -> object: ...
    def digest(self) -> bytes: ...
    def copy(self) -> Self: ...


@cache
def cpu_count() -> int:
    """How many cores this process may use: those it may run on, within its container's share."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
    return min(cores, _share(_CPU_MAX) or cores)


def _share(cpu_max: Path) -> int | None:
    """How many cores' time a control group has, if it has a limit; a part of one counts as one.

    A thread a core of a large node would outrun the limit of a small container, and be halted.
    """
    try:
        quota, period = cpu_max.read_text(encoding="ascii").split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError):  # no control groups, or "max"
        return None


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cpu_count(), thread_name_prefix="mmhash")


# The number of forks between the first process and this one.
_forks = 0


def _after_fork() -> None:
    # A forked child inherits the pools but not their threads: work given to them never ends.
    global _forks  # noqa: PLW0603
    _forks += 1
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _check_threads(threads: int | None, nbytes: int) -> int:
    if threads is None:
        return 1 if nbytes < PARALLEL_FROM else cpu_count()
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise InputTypeError(f"threads is an int or None, not {type(threads).__name__}")
    if threads < 1:
        raise InputValueError(f"threads is at least 1, not {threads}")
    return threads


def _blake3_state(threads: int) -> _State:
    # blake3's thread pools do not survive a fork, nor do the locks with which it makes them.
    if threads == 1 or _forks:
        return blake3()
    # AUTO shares one pool of all cores; a number makes a pool of its own (0.5 ms).
    return blake3(max_threads=blake3.AUTO if threads >= cpu_count() else threads)


def _leaf_digests(data: memoryview) -> bytes:
    """The digests of the whole leaves of `data`, and of what is left after them."""
    leaves = [data[at : at + XXH3_LEAF] for at in range(0, len(data), XXH3_LEAF)]
    return b"".join(map(xxh3_128_digest, leaves))


class _Xxh3Tree:
    """The xxh3 tree as a stream: the root takes each leaf's digest as soon as the leaf is full."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._root = xxh3_128(seed=XXH3_ROOT_SEED)
        self._leaf = xxh3_128()
        self._in_leaf = 0
        self._length = 0

    def update(self, data: memoryview, /) -> None:
        self._length += len(data)
        if self._in_leaf:
            head, data = data[: XXH3_LEAF - self._in_leaf], data[XXH3_LEAF - self._in_leaf :]
            self._fill_leaf(head)
        whole = len(data) - len(data) % XXH3_LEAF
        for digests in self._in_parallel(data[:whole]):
            self._root.update(digests)
        self._fill_leaf(data[whole:])

    def _in_parallel(self, data: memoryview) -> Iterable[bytes]:
        threads = min(self._threads, len(data) // XXH3_SHARE)
        if threads <= 1:
            return (_leaf_digests(data),)
        share = -(-len(data) // XXH3_LEAF // threads) * XXH3_LEAF
        shares = [data[at : at + share] for at in range(0, len(data), share)]
        return _pool().map(_leaf_digests, shares)

    def _fill_leaf(self, data: memoryview) -> None:
        self._leaf.update(data)
        self._in_leaf += len(data)
        if self._in_leaf == XXH3_LEAF:
            self._root.update(self._leaf.digest())
            self._leaf.reset()
            self._in_leaf = 0

    def digest(self) -> bytes:
        root = self._root.copy()
        if self._in_leaf:
            root.update(self._leaf.digest())
        root.update(self._length.to_bytes(8, "little"))
        return root.digest()

    def copy(self) -> Self:
        twin = type(self)(self._threads)
        twin._root = self._root.copy()
        twin._leaf = self._leaf.copy()
        twin._in_leaf = self._in_leaf
        twin._length = self._length
        return twin


def hash_bytes(data: memoryview, algorithm: Algorithm, threads: int | None = None) -> Digest:
    """The digest of a flat buffer, read in place."""
    threads = _check_threads(threads, len(data))
    state = _blake3_state(threads) if algorithm == "blake3" else _Xxh3Tree(threads)
    state.update(data)
    return Digest(algorithm, state.digest())


class Hasher:
    """A digest of what arrives piece by piece, with hashlib's habits.

    A forked child hashes BLAKE3 on one thread, whatever `threads` says.
    """

    def __init__(self, algorithm: str = "blake3", *, threads: int = 1) -> None:
        self.name = check_algorithm(algorithm)
        self._threads = _check_threads(threads, 0)
        self._forks = _forks
        self._state = (
            _blake3_state(self._threads) if self.name == "blake3" else _Xxh3Tree(self._threads)
        )

    @property
    def digest_size(self) -> int:
        """How many bytes `digest()` gives."""
        return DIGEST_SIZE[self.name]

    def update(self, data: object) -> Self:
        """Take in the bytes of anything that `mmhash.digest` takes; return the hasher itself."""
        content = bytes_of(data)
        if self._forks == _forks or self._threads == 1 or self.name != "blake3":
            self._state.update(content)
        else:
            self._update_after_fork(content)
        return self

    def _update_after_fork(self, content: memoryview) -> None:
        """Take in bytes without the threads, which stayed in the parent."""
        if self._threads < cpu_count():  # a pool of its own, which takes in every byte
            raise InputValueError(
                f"a Hasher with threads={self._threads} cannot be used after a fork: its threads"
                " stayed in the parent. Make it in the child, or with threads=1"
            )
        for start in range(0, len(content), BLAKE3_CHUNK):
            self._state.update(content[start : start + BLAKE3_CHUNK])

    def digest(self) -> bytes:
        """The digest of all so far; more may follow."""
        return self._state.digest()

    def hexdigest(self) -> str:
        """The digest of all so far, as hex."""
        return self.digest().hex()

    def copy(self) -> "Hasher":
        """A hasher of its own, from the same state."""
        twin = Hasher.__new__(Hasher)
        twin.name = self.name
        twin._threads = self._threads
        twin._forks = self._forks
        twin._state = self._state.copy()
        return twin
