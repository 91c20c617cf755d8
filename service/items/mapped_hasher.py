"""Processes that hash segments of shared memory through a mapping, for this one.

Who owns a segment can cut it short while it is hashed, and then the process that maps it is ended
(SIGBUS). So others map it: such an end is one call's failure, and the process is replaced. pread()
in this process would be as safe, but takes 20 MiB from 2.6 to 5 ms: it copies at 5 GB/s.

The parent sends a descriptor with a header and the ranges, and gets a digest a range.
"""

import mmap
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, LifoQueue

from mmhash import Digest
from mmhash.cpu import hash_bytes
from mmhash.digest import ALGORITHMS, DIGEST_SIZE, Algorithm
from mmhash.errors import TransportError
from mmhash_service.api.problems import Problem

# Each process hashes by all cores: two, so that a short item does not wait for a long one.
PROCESSES = 2

_HEADER = struct.Struct("<BBI")  # the algorithm, whether to keep the mapping, how many ranges
_RANGE = struct.Struct("<QQ")
_KEPT = 4  # mappings that a process keeps, of pools
_IDLE_S = 2.0  # after this time it looks whether their files are gone


class MappedHasher:
    """The processes, each started when it is first needed."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._idle: LifoQueue[_Child | None] = LifoQueue()
        for _ in range(PROCESSES):
            self._idle.put(None)

    def digests(
        self, file: int, ranges: Sequence[tuple[int, int]], algorithm: Algorithm, *, keep: bool
    ) -> list[Digest]:
        """The digests of ranges of a file, which the caller has checked to be that long."""
        try:
            child = self._idle.get(timeout=self._timeout_s)
        except Empty:
            raise Problem("too-slow") from None
        healthy: _Child | None = None
        try:
            if child is None:
                child = _Child(self._timeout_s)
            found = child.ask(file, ranges, algorithm, keep)
            healthy = child
            return found  # noqa: TRY300  (in the order of events)
        except TimeoutError:
            raise Problem("too-slow") from None
        except (OSError, EOFError) as error:
            raise TransportError("the segment was cut short while it was read") from error
        finally:
            if healthy is None and child is not None:
                child.end()
            self._idle.put(healthy)

    def close(self) -> None:
        """End the processes that are idle; the others end with this process at the latest."""
        for _ in range(PROCESSES):
            try:
                child = self._idle.get_nowait()
            except Empty:
                return
            if child is not None:
                child.end()


class _Child:
    """A process, as its parent sees it. It ends when the connection does."""

    def __init__(self, timeout_s: float) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # A session of its own: what a terminal sends to the server is not for it.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mmhash_service.items.mapped_hasher"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.settimeout(timeout_s)
        self._socket = ours

    def ask(
        self, file: int, ranges: Sequence[tuple[int, int]], algorithm: Algorithm, keep: bool
    ) -> list[Digest]:
        header = _HEADER.pack(ALGORITHMS.index(algorithm), keep, len(ranges))
        socket.send_fds(self._socket, [header], [file])
        self._socket.sendall(b"".join(_RANGE.pack(*part) for part in ranges))
        size = DIGEST_SIZE[algorithm]
        answer = _receive(self._socket, size * len(ranges))
        return [Digest(algorithm, answer[at : at + size]) for at in range(0, len(answer), size)]

    def end(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _receive(connection: socket.socket, nbytes: int) -> bytes:
    received = bytearray()
    while len(received) < nbytes:
        piece = connection.recv(min(nbytes - len(received), 1 << 20))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)


def main() -> None:
    """Answer the parent until it hangs up, or a file is shorter than it said."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a SIGBUS is expected, no dump of content
    parent = socket.socket(fileno=os.dup(0))
    with suppress(EOFError, OSError):
        _answer(parent, _Mappings())


def _answer(parent: socket.socket, mappings: "_Mappings") -> None:
    while True:
        if mappings.any and not select.select([parent], [], [], _IDLE_S)[0]:
            mappings.drop_gone()
            continue
        header, files, _, _ = socket.recv_fds(parent, _HEADER.size, 1)
        if not header:
            return
        header += _receive(parent, _HEADER.size - len(header))
        algorithm, keep, count = _HEADER.unpack(header)
        ranges = list(_RANGE.iter_unpack(_receive(parent, count * _RANGE.size)))
        whole = mappings.map(files[0], bool(keep))
        found = [_digest(whole, start, nbytes, ALGORITHMS[algorithm]) for start, nbytes in ranges]
        parent.sendall(b"".join(found))


def _digest(whole: memoryview, start: int, nbytes: int, algorithm: Algorithm) -> bytes:
    part = whole[start : start + nbytes]
    if len(part) != nbytes:  # the file is shorter than it was a moment ago
        raise EOFError
    return hash_bytes(part, algorithm).bytes


class _Mappings:
    """Mappings of pools, kept by their files, which stay open: so no other is taken for one."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int], tuple[int, memoryview]] = {}

    @property
    def any(self) -> bool:
        return bool(self._known)

    def map(self, file: int, keep: bool) -> memoryview:
        """The whole file; its descriptor is kept or closed."""
        self.drop_gone()
        found = os.fstat(file)
        key = (found.st_dev, found.st_ino, found.st_size)
        if key in self._known:
            os.close(file)
            self._known[key] = self._known.pop(key)  # the last to go
            return self._known[key][1]
        whole = memoryview(b"")
        if found.st_size:
            whole = memoryview(mmap.mmap(file, found.st_size, access=mmap.ACCESS_READ))
        if keep:
            while len(self._known) >= _KEPT:
                self._drop(next(iter(self._known)))
            self._known[key] = (file, whole)
        else:
            os.close(file)
        return whole

    def drop_gone(self) -> None:
        """Give up the memory of files that were removed or have another length."""
        for key, (file, _) in list(self._known.items()):
            found = os.fstat(file)
            if found.st_nlink == 0 or found.st_size != key[2]:
                self._drop(key)

    def _drop(self, key: tuple[int, int, int]) -> None:
        file, _ = self._known.pop(key)
        os.close(file)


if __name__ == "__main__":
    main()
