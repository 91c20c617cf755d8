"""The folder in which the processes of one supervisor add up their metrics.

A killed supervisor cannot remove its folder, which its processes still use while they drain. So
each process locks the folder, and the next supervisor removes the folders that nobody locks.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "mmhash-metrics-"

# A younger folder may belong to a supervisor that has not locked it yet.
_MIN_AGE_S = 3600.0


@contextmanager
def metrics_folder() -> Iterator[str]:
    """Make a folder for this supervisor, and remove it at the end."""
    _remove_orphans()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        hold(folder)
        yield folder


def hold(folder: str) -> None:
    """Lock a folder until this process ends."""
    fcntl.flock(_open(folder), fcntl.LOCK_SH)


def _open(folder: str | Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _remove_orphans() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # it belongs to another user, is locked, or another supervisor removed it
        with suppress(OSError):
            _remove_orphan(folder)


def _remove_orphan(folder: Path) -> None:
    descriptor = _open(folder)
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _MIN_AGE_S:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)
