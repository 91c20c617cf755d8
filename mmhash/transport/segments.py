"""Files in shared memory: one process creates a file, others open it, and its creator removes it.

multiprocessing.shared_memory does not suit: on Python 3.11 and 3.12, any process that merely opens
such a segment removes it on exit.
"""

import fcntl
import mmap
import os
import re
import secrets
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from mmhash.errors import TransportError

DIRECTORY = Path("/dev/shm")  # noqa: S108  (where shared memory is on Linux)

# The owner's process id, for whoever lists the directory, and 64 random bits.
NAME = re.compile(r"mmhash-[1-9][0-9]{0,9}-[0-9a-f]{16}", re.ASCII)

M = TypeVar("M")


class Segment:
    """A file of this process, removed by close(), with this object, or by remove_orphans().

    A lock on the file shows that the owner runs, even to processes in other containers. The file
    gets its name once it is locked.
    """

    def __init__(self, nbytes: int) -> None:
        pid = os.getpid()
        self.name = f"mmhash-{pid}-{secrets.token_hex(8)}"
        path = str(DIRECTORY / self.name)
        try:
            self._file = os.open(f"{path}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            Path(f"{path}.new").rename(path)
        except OSError as error:
            raise TransportError(
                f"cannot create a file in {DIRECTORY}: {error.strerror}"
            ) from error
        self.close = weakref.finalize(self, _remove, path, self._file, pid)
        """Remove the file; idempotent. Does nothing in a forked child."""
        # A process forked by multiprocessing exits through os._exit(), which runs no other
        # finalizers.
        if util := sys.modules.get("multiprocessing.util"):
            util.Finalize(self, self.close, exitpriority=0)
        try:
            # Without reserved memory, a write to the mapping could end in SIGBUS.
            os.posix_fallocate(self._file, 0, max(nbytes, 1))
        except OSError as error:
            self.close()
            raise TransportError(
                f"no room for {nbytes} bytes in {DIRECTORY}: {error.strerror}"
            ) from error

    def fill(self, content: memoryview) -> None:
        """Write the file's bytes by pwrite(), which neither faults pages in nor clears them."""
        done = 0
        while done < len(content):
            done += os.pwrite(self._file, content[done:], done)


def _remove(path: str, file: int, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        Path(path).unlink(missing_ok=True)
        os.close(file)


def map_private(name: str, offset: int, nbytes: int) -> memoryview:
    """Map bytes of a segment privately.

    Torch has no read-only tensors. A private mapping is writable, and writes never reach the owner.
    """
    if nbytes == 0:
        offset = 0  # an empty range may begin at the end, which cannot be mapped
    start = offset - offset % mmap.ALLOCATIONGRANULARITY
    mapping = _map(name, mmap.ACCESS_COPY, start, offset + nbytes)
    return memoryview(mapping)[offset - start : offset - start + nbytes]


def map_shared(name: str) -> mmap.mmap:
    """Map a whole segment for both sides to read and write."""
    return _map(name, mmap.ACCESS_WRITE)


def _map(name: str, access: int, start: int = 0, end: int = 0) -> mmap.mmap:
    """Map a segment from `start` on: at least `end` bytes, or all if `end` is 0."""
    try:
        flags = os.O_RDWR if access == mmap.ACCESS_WRITE else os.O_RDONLY
        file = os.open(DIRECTORY / name, flags)
    except FileNotFoundError:
        raise TransportError(
            f"segment {name} is gone: its owner closed it, or {DIRECTORY} is not shared with it"
        ) from None
    except OSError as error:
        raise TransportError(f"cannot open segment {name}: {error.strerror}") from error
    try:
        size = os.fstat(file).st_size
        if size < end:
            raise TransportError(f"segment {name} has {size} bytes, and its handle needs {end}")
        return mmap.mmap(file, (end or size) - start, access=access, offset=start)
    except (OSError, ValueError) as error:
        raise TransportError(f"cannot map segment {name}: {error}") from error
    finally:
        os.close(file)


class KeptMappings(Generic[M]):
    """Mappings of pools, each made once and kept for later handles while the pool's owner runs."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._mappings: dict[
            tuple[str, int | None], M
        ] = {}  # by the name of a segment and the device

    def get(self, name: str, make: Callable[[], M], device: int | None = None) -> M:
        """Return the mapping of a pool for a device; make it if it is missing."""
        with self._lock:
            if (name, device) not in self._mappings:
                self._mappings = {
                    key: kept for key, kept in self._mappings.items() if has_owner(key[0])
                }
                self._mappings[name, device] = make()
            return self._mappings[name, device]


_pool_mappings = KeptMappings[memoryview]()


def view_pool(name: str, offset: int, nbytes: int) -> memoryview:
    """Return bytes of a pool's segment, read-only."""
    whole = _pool_mappings.get(name, lambda: memoryview(_map(name, mmap.ACCESS_READ)))
    return whole[offset : offset + nbytes]


def has_owner(name: str) -> bool:
    """Return True if a segment exists and its owner runs."""
    try:
        file = os.open(DIRECTORY / name, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # of another user
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def remove_orphans() -> list[str]:
    """Remove this user's segments whose owners have exited, and return the segments' names."""
    return [name for name in _own_segments() if not has_owner(name) and _unlink(name)]


def _own_segments() -> Iterator[str]:
    for entry in os.scandir(DIRECTORY):
        if NAME.fullmatch(entry.name):
            # its owner or another process may remove it meanwhile
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    yield entry.name


def _unlink(name: str) -> bool:
    with suppress(FileNotFoundError):
        (DIRECTORY / name).unlink()
        return True
    return False
