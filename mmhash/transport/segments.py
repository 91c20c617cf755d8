"""Files in shared memory: made by one owner, opened with suspicion, removed when he is dead.

Not multiprocessing.shared_memory: on Python 3.11 and 3.12 a process that only opens such a segment
removes it when it ends.
"""

import fcntl
import mmap
import os
import re
import secrets
import stat
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mmhash.errors import TransportError
from mmhash.transport.fork import Process, current_process, watch_forks

DIRECTORY = Path("/dev/shm")  # noqa: S108  (where shared memory is on Linux)

# Owner, when he was started, since a process id is used again, and 64 random bits.
NAME = re.compile(r"mmhash-([1-9][0-9]{0,9})-([0-9]{1,20})-[0-9a-f]{16}", re.ASCII)

_DEAD = ("Z", "X")
_LOOK = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO would wait for its other end


class Segment:
    """A file of this process: it goes with close(), with this object, or at the latest by sweep().

    Its lock says that the owner lives to whoever cannot see his process.
    """

    def __init__(self, nbytes: int) -> None:
        pid = os.getpid()
        self.name = f"mmhash-{pid}-{_started(pid) or 0}-{secrets.token_hex(8)}"
        path = str(DIRECTORY / self.name)
        self._files: list[int] = []
        # An exception may strike between any two lines, from a signal handler for one: what
        # removes the file is there before the file is.
        self._undo = (path, self._files, current_process())
        # Two: an exception in a finalizer goes nowhere, and the first may be interrupted.
        self._finalizers = [weakref.finalize(self, _remove, *self._undo) for _ in range(2)]
        _exit_with_multiprocessing(self)
        watch_forks(self)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _LOOK
        try:
            # In C from the call to the list: no signal handler comes between.
            self._files.extend(map(os.open, [path], [flags], [0o600]))
        except OSError as error:
            raise TransportError(f"cannot make a file in {DIRECTORY}: {error.strerror}") from error
        try:
            fcntl.flock(self._files[0], fcntl.LOCK_EX)
            # Memory that is not there would be found missing by a SIGBUS.
            os.posix_fallocate(self._files[0], 0, max(nbytes, 1))
        except OSError as error:
            self.close()
            raise TransportError(
                f"no room for {nbytes} bytes in {DIRECTORY}: {error.strerror}"
            ) from error

    def close(self) -> None:
        """Remove the file; more often changes nothing, and so does a forked child."""
        _remove(*self._undo)  # itself, not by the finalizer, which runs once: it may be interrupted
        for finalizer in self._finalizers:
            finalizer.detach()

    def after_fork(self) -> None:
        """Close the parent's file in a forked child: its lock says that the parent lives."""
        while self._files:
            os.close(self._files.pop())

    def fill(self, content: memoryview) -> None:
        """Write the file's bytes: by write(), which has no page to fault in and none to clear."""
        done = 0
        while done < len(content):
            done += os.pwrite(self._files[0], content[done:], done)


def _remove(path: str, files: list[int], owner: Process) -> None:
    if current_process() != owner:  # but a child that it forked
        return
    if files:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108  (one call, which nothing interrupts half-way)
    while files:
        os.close(files.pop())


def _exit_with_multiprocessing(segment: Segment) -> None:
    """Remove a segment too at the end of a process that multiprocessing forked.

    It ends by os._exit(), which runs no other finalizers.
    """
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(segment, _remove, segment._undo, exitpriority=0)


def map_private(name: str, offset: int, nbytes: int) -> memoryview:
    """See bytes of a segment in place.

    Torch has no read-only tensors. The mapping is private instead: what is written to it is
    this process's own and never reaches the owner.
    """
    file, _ = open_segment(name, os.O_RDONLY, offset + nbytes)
    try:
        if nbytes == 0:
            return memoryview(b"")
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        length = offset - start + nbytes
        return memoryview(mmap.mmap(file, length, access=mmap.ACCESS_COPY, offset=start))[
            offset - start :
        ]
    except (OSError, ValueError, OverflowError) as error:
        raise TransportError(f"cannot map {nbytes} bytes of segment {name}") from error
    finally:
        os.close(file)


def map_shared(name: str, least: int, most: int) -> mmap.mmap:
    """A whole segment, to be read and written by both sides."""
    file, found = open_segment(name, os.O_RDWR, least)
    try:
        size = found.st_size
        if size > most:
            raise TransportError(f"segment {name} has {size} bytes: {most} at most are expected")
        return mmap.mmap(file, size)
    except (OSError, ValueError) as error:
        raise TransportError(f"cannot map segment {name}: {error}") from error
    finally:
        os.close(file)


def identity(found: os.stat_result) -> tuple[int, int, int]:
    """The file and its length: while it is open or mapped, no other file has the same."""
    return found.st_dev, found.st_ino, found.st_size


class _Lent:
    """Pools' segments as their readers see them, each mapped once and kept for the next handle.

    To hash 20 MiB takes 3.5 ms through a new mapping and 1.7 ms through one that is kept. It is
    kept by what was verified of the file, which is opened and looked at for each handle: a name
    can be taken by another file, and a file can change its length.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._known: dict[tuple[str, tuple[int, int, int]], memoryview] = {}
        watch_forks(self)

    def after_fork(self) -> None:
        """Use a new lock: the thread that held the old one is not here."""
        self._lock = threading.RLock()

    def see(self, name: str, offset: int, nbytes: int) -> memoryview:
        """Bytes of a segment, read-only."""
        file, found = open_segment(name, os.O_RDONLY, offset + nbytes)
        try:
            if nbytes == 0:
                return memoryview(b"")
            key = (name, identity(found))
            with self._lock:
                whole = self._known.get(key)
                if whole is None:
                    self._known = {
                        known: view for known, view in self._known.items() if is_there(known[0])
                    }
                    mapping = mmap.mmap(file, found.st_size, access=mmap.ACCESS_READ)
                    whole = self._known[key] = memoryview(mapping)
            return whole[offset : offset + nbytes]
        except (OSError, ValueError, OverflowError) as error:
            raise TransportError(f"cannot map segment {name}: {error}") from error
        finally:
            os.close(file)


lent = _Lent()


def is_there(name: str) -> bool:
    """Whether a segment's owner has neither closed it nor died."""
    return (DIRECTORY / name).exists() and not _orphaned(name)


def sweep() -> list[str]:
    """Remove the segments of this user whose owners are dead, and tell their names."""
    return [name for name in _mine() if _orphaned(name) and _unlink(name)]


def _mine() -> Iterator[str]:
    for entry in os.scandir(DIRECTORY):
        if NAME.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
            yield entry.name


def _unlink(name: str) -> bool:
    with suppress(FileNotFoundError):
        (DIRECTORY / name).unlink()
        return True
    return False


def _orphaned(name: str) -> bool:
    found = NAME.fullmatch(name)
    if found is None or _started(int(found[1])) == int(found[2]):
        return False
    # Not alive here; but where containers share the memory and not their processes, he may be
    # elsewhere, and then his lock is.
    try:
        file = os.open(DIRECTORY / name, os.O_RDONLY | _LOOK)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _started(pid: int) -> int | None:
    """When a process was started, in ticks since the boot; None if it does not live."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = status.rpartition(")")[2].split()  # the command's name may hold anything
    return None if fields[0] in _DEAD else int(fields[19])


def open_segment(name: str, flags: int, size: int) -> tuple[int, os.stat_result]:
    """Open a segment of at least `size` bytes: a regular file of this user or root, and no link."""
    try:
        file = os.open(DIRECTORY / name, flags | _LOOK)
    except FileNotFoundError:
        raise TransportError(
            f"segment {name} is gone: its owner closed it, or {DIRECTORY} is not shared with him"
        ) from None
    except OSError as error:
        raise TransportError(f"cannot open segment {name}: {error.strerror}") from error
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        why = "is not a regular file"
    elif found.st_uid not in {os.geteuid(), 0}:
        why = "belongs to another user"
    elif found.st_size < size:
        why = f"has {found.st_size} bytes, and its handle speaks of {size}"
    else:
        return file, found
    os.close(file)
    raise TransportError(f"segment {name} {why}")
