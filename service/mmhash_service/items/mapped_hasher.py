"""Helper processes that map and hash segments of untrusted shared memory.

The owner of a segment can truncate it while it is hashed, which kills the process that maps it
(SIGBUS). In a helper process this fails one request, and the process is replaced. pread() in this
process would be as safe, but takes 5 ms instead of 2.6 ms for 20 MiB: it copies at 5 GB/s.

A request is a file descriptor with a header and the ranges; the response is a digest for each.
"""

import logging
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from queue import Empty, LifoQueue

from mmhash import Digest
from mmhash.cpu import hash_bytes
from mmhash.digest import ALGORITHMS, DIGEST_SIZE, Algorithm
from mmhash.errors import TransportError
from mmhash_service.api.problems import Problem
from mmhash_service.runtime.child_process import ChildProcess

logger = logging.getLogger(__name__)

# Each process uses all cores. There are two, so that a short item does not wait for a long one.
PROCESSES = 2

_HEADER = struct.Struct("<BBI")  # algorithm, keep the mapping, number of ranges
_RANGE = struct.Struct("<QQ")
_KEPT = 4  # mappings of pools that a process keeps
_IDLE_S = 2.0  # the interval at which an idle process drops mappings of removed files


class HasherEndedError(TransportError):
    """The process ended in a request: its file was truncated, or something else killed it."""


class MappedHasher:
    """The pool of processes, each started when it is first needed."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._idle: LifoQueue[_Child | None] = LifoQueue()
        for _ in range(PROCESSES):
            self._idle.put(None)

    def digests(
        self, file: int, ranges: Sequence[tuple[int, int]], algorithm: Algorithm, *, keep: bool
    ) -> list[Digest]:
        """Return the digests of ranges of a file whose length the caller has checked.

        Raises:
            HasherEndedError: The next call has another process.
        """
        try:
            idle = self._idle.get(timeout=self._timeout_s)
        except Empty:
            raise Problem("too-slow") from None
        child: _Child | None = None
        healthy: _Child | None = None
        try:
            child = self._running(idle)
            digests = child.request(file, ranges, algorithm, keep)
            healthy = child
            return digests  # noqa: TRY300  (in the order of events)
        except TimeoutError:
            raise Problem("too-slow") from None
        except (OSError, EOFError) as error:
            if child is None:  # it could not be started
                raise
            logger.warning("a process for shared memory ended with status %d", child.kill())
            raise HasherEndedError("the process that hashed a segment ended") from error
        finally:
            if healthy is None and child is not None:
                child.kill()
            self._idle.put(healthy)

    def _running(self, idle: "_Child | None") -> "_Child":
        if idle is not None:
            if idle.runs():
                return idle
            idle.kill()  # only to close its connection: it was killed while it was idle
        return _Child(self._timeout_s)

    def close(self) -> None:
        """Kill the idle processes; the others exit with this process at the latest."""
        for _ in range(PROCESSES):
            try:
                child = self._idle.get_nowait()
            except Empty:
                return
            if child is not None:
                child.kill()


class _Child:
    """A process, and its requests. It exits when the connection is closed."""

    def __init__(self, timeout_s: float) -> None:
        self._process = ChildProcess("mmhash_service.items.mapped_hasher")
        self._process.connection.settimeout(timeout_s)

    def request(
        self, file: int, ranges: Sequence[tuple[int, int]], algorithm: Algorithm, keep: bool
    ) -> list[Digest]:
        connection = self._process.connection
        header = _HEADER.pack(ALGORITHMS.index(algorithm), keep, len(ranges))
        socket.send_fds(connection, [header], [file])
        connection.sendall(b"".join(_RANGE.pack(*part) for part in ranges))
        size = DIGEST_SIZE[algorithm]
        response = _receive(connection, size * len(ranges))
        starts = range(0, len(response), size)
        return [Digest(algorithm, response[start : start + size]) for start in starts]

    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> int:
        """End the process if it still runs, and return its exit code."""
        self._process.kill()
        return self._process.wait()


def _receive(connection: socket.socket, nbytes: int) -> bytes:
    received = bytearray()
    while len(received) < nbytes:
        piece = connection.recv(min(nbytes - len(received), 1 << 20))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)


def main(descriptor: int) -> None:
    """Answer requests until the parent closes the connection, or a file is truncated."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGBUS is expected: dump no content
    parent = socket.socket(fileno=descriptor)
    try:
        _serve(parent, _Mappings())
    except (EOFError, OSError):
        os._exit(1)  # the connection ends with the process, whose code the parent reads then


def _serve(parent: socket.socket, mappings: "_Mappings") -> None:
    while True:
        if mappings and not select.select([parent], [], [], _IDLE_S)[0]:
            mappings.drop_stale()
            continue
        header, files, _, _ = socket.recv_fds(parent, _HEADER.size, 1)
        if not header:
            return
        header += _receive(parent, _HEADER.size - len(header))
        algorithm, keep, count = _HEADER.unpack(header)
        ranges = list(_RANGE.iter_unpack(_receive(parent, count * _RANGE.size)))
        whole = mappings.map(files[0], bool(keep))
        digests = [_digest(whole, start, nbytes, ALGORITHMS[algorithm]) for start, nbytes in ranges]
        parent.sendall(b"".join(digests))


def _digest(whole: memoryview, start: int, nbytes: int, algorithm: Algorithm) -> bytes:
    part = whole[start : start + nbytes]
    if len(part) != nbytes:  # the file was truncated since the parent checked it
        raise EOFError
    return hash_bytes(part, algorithm).bytes


class _Mappings:
    """Cached mappings of pools. Their files stay open, so that no inode number is reused."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int], tuple[int, memoryview]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def map(self, file: int, keep: bool) -> memoryview:
        """Return the whole file; its descriptor is kept or closed."""
        self.drop_stale()
        status = os.fstat(file)
        key = (status.st_dev, status.st_ino, status.st_size)
        if key in self._known:
            os.close(file)
            self._known[key] = self._known.pop(key)  # now the most recently used
            return self._known[key][1]
        whole = memoryview(b"")
        if status.st_size:
            whole = memoryview(mmap.mmap(file, status.st_size, access=mmap.ACCESS_READ))
        if keep:
            while len(self._known) >= _KEPT:
                self._drop(next(iter(self._known)))
            self._known[key] = (file, whole)
        else:
            os.close(file)
        return whole

    def drop_stale(self) -> None:
        """Unmap files that were removed or have another length."""
        for key, (file, _) in list(self._known.items()):
            status = os.fstat(file)
            if status.st_nlink == 0 or status.st_size != key[2]:
                self._drop(key)

    def _drop(self, key: tuple[int, int, int]) -> None:
        file, _ = self._known.pop(key)
        os.close(file)


if __name__ == "__main__":
    main(int(sys.argv[1]))
