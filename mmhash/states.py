"""Hash states on the CPU, from the blake3 and xxhash packages, and the threads that they use.

Both packages release the GIL while reading a large buffer.
"""

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from blake3 import blake3
from xxhash import xxh3_128, xxh3_128_digest

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

# The leaves of the xxh3 tree (docs/spec.md). Smaller leaves suit a GPU, larger leaves a CPU.
XXH3_LEAF = 256 * 1024
XXH3_ROOT_SEED = int.from_bytes(b"mmh-root", "big")

# XXH3 is as fast as memory, so another thread is worth starting only for this much data.
XXH3_SHARE = 32 << 20

# The CPU limit of this process's control group as a container sees it: quota and period, or "max".
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


FlatBuffer = bytes | bytearray | memoryview


class State(Protocol):
    """A hash that is still taking data."""

    def update(self, data: FlatBuffer, /) -> object:
        """Add the bytes of `data`."""

    def digest(self) -> bytes:
        """Return the digest of all bytes so far."""
        ...

    def copy(self) -> Self:
        """Return an independent state."""
        ...


@cache
def cpu_count() -> int:
    """Return the number of cores that this process may use, within its container's CPU limit."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
    return min(cores, _cpu_limit(_CPU_MAX) or cores)


def _cpu_limit(cpu_max: Path) -> int | None:
    """Return a control group's CPU limit in whole cores, rounded up, or None without a limit.

    With a thread per core of a large node, a small container would exceed its limit and be
    throttled.
    """
    try:
        quota, period = cpu_max.read_text(encoding="ascii").split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError):  # no control groups, or "max"
        return None


@cache
def _thread_pool(process: int) -> "ThreadPoolExecutor":  # noqa: ARG001  (a child has no threads)
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  (it imports logging)

    return ThreadPoolExecutor(cpu_count(), thread_name_prefix="mmhash")


# The only process that may use blake3's threads: the one that imported this module.
_threads_of = os.getpid()


def use_threads_again() -> None:
    """Let this forked child use threads, which is safe only if its parents never used any."""
    global _threads_of  # noqa: PLW0603
    _threads_of = os.getpid()


def blake3_state(threads: int) -> State:
    """Return a new BLAKE3 state, limited to one thread in a forked child."""
    # Neither blake3's thread pools nor the locks that guard their creation survive a fork.
    if threads == 1 or os.getpid() != _threads_of:
        return blake3()
    # AUTO shares one pool of all cores; a number creates a separate pool.
    return blake3(max_threads=blake3.AUTO if threads >= cpu_count() else threads)


def blake3_digest(data: FlatBuffer) -> bytes:
    """Return the BLAKE3 digest of a buffer, computed by one thread."""
    return blake3(data).digest()


class Xxh3Tree:
    """The xxh3 tree as a stream: the root takes each leaf's digest once the leaf is full."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._root = xxh3_128(seed=XXH3_ROOT_SEED)
        self._leaf = xxh3_128()
        self._in_leaf = 0
        self._length = 0

    def update(self, data: FlatBuffer, /) -> None:
        """Add the bytes of `data`."""
        self._length += len(data)
        if self._in_leaf:
            head, data = data[: XXH3_LEAF - self._in_leaf], data[XXH3_LEAF - self._in_leaf :]
            self._fill_leaf(head)
        whole = len(data) - len(data) % XXH3_LEAF
        for digests in self._whole_leaves(data[:whole]):
            self._root.update(digests)
        self._fill_leaf(data[whole:])

    def _whole_leaves(self, data: FlatBuffer) -> Iterable[bytes]:
        threads = min(self._threads, len(data) // XXH3_SHARE)
        if threads <= 1:
            return (_leaf_digests(data),)
        share = -(-len(data) // XXH3_LEAF // threads) * XXH3_LEAF
        shares = [data[start : start + share] for start in range(0, len(data), share)]
        return _thread_pool(os.getpid()).map(_leaf_digests, shares)

    def _fill_leaf(self, data: FlatBuffer) -> None:
        self._leaf.update(data)
        self._in_leaf += len(data)
        if self._in_leaf == XXH3_LEAF:
            self._root.update(self._leaf.digest())
            self._leaf.reset()
            self._in_leaf = 0

    def digest(self) -> bytes:
        """Return the digest of all bytes so far."""
        root = self._root.copy()
        if self._in_leaf:
            root.update(self._leaf.digest())
        root.update(self._length.to_bytes(8, "little"))
        return root.digest()

    def copy(self) -> Self:
        """Return an independent state."""
        twin = type(self)(self._threads)
        twin._root = self._root.copy()
        twin._leaf = self._leaf.copy()
        twin._in_leaf = self._in_leaf
        twin._length = self._length
        return twin


def xxh3_digest(data: FlatBuffer) -> bytes:
    """Return the digest of the xxh3 tree over a buffer, computed by one thread."""
    root = _leaf_digests(data) + len(data).to_bytes(8, "little")
    return xxh3_128_digest(root, seed=XXH3_ROOT_SEED)


def _leaf_digests(data: FlatBuffer) -> bytes:
    """Return the digests of the leaves of `data`, one after another."""
    leaves = [data[start : start + XXH3_LEAF] for start in range(0, len(data), XXH3_LEAF)]
    return b"".join(map(xxh3_128_digest, leaves))
