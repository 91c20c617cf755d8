"""Files that begin with a checksum, so that damaged, swapped and foreign files are detected."""

import os
import shutil
import stat
import struct
from pathlib import Path

from blake3 import blake3

from mmhash.errors import MMHashError

_MAGIC = b"mmhash\0\1"
_LENGTH = struct.Struct("<Q")
_CHECKSUM_SIZE = 32
_HEAD_SIZE = len(_MAGIC) + _LENGTH.size + _CHECKSUM_SIZE

_MAX_DEPTH = 100

# Do not follow a link, and do not wait for the writer of a FIFO.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class DamagedError(MMHashError):
    """A file's content is not the content that was written."""


def framed(payload: bytes | memoryview, purpose: str) -> tuple[bytes, bytes | memoryview]:
    """Return the header of a file and its payload; read only with the same purpose."""
    length = _LENGTH.pack(len(payload))
    return _MAGIC + length + _checksum(payload, purpose), payload


def read_checked(path: Path, purpose: str) -> memoryview:
    """Return a file's payload, or raise DamagedError or FileNotFoundError."""
    try:
        checksum, payload = _read(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedError(error.strerror or type(error).__name__) from error
    if _checksum(payload, purpose) != checksum:
        raise DamagedError("its checksum is of other content, or of another run")
    return payload


def _read(path: Path) -> tuple[bytes, memoryview]:
    with open(path, "rb", opener=lambda name, _: os.open(name, _FLAGS)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise DamagedError("not a regular file")
        head = file.read(_HEAD_SIZE)
        if len(head) < _HEAD_SIZE or not head.startswith(_MAGIC):
            raise DamagedError("no checksum in front of it")
        (length,) = _LENGTH.unpack_from(head, len(_MAGIC))
        if status.st_size != _HEAD_SIZE + length:  # checked before gigabytes are read
            raise DamagedError(f"{status.st_size} bytes, not {_HEAD_SIZE + length}")
        return head[-_CHECKSUM_SIZE:], memoryview(file.read(length))


def remove(path: Path) -> None:
    """Remove a file, a link or a directory; not the target of a link."""
    try:
        if path.is_dir() and not path.is_symlink():
            _check_depth(path)
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise MMHashError(f"{path} cannot be removed ({why}): remove it") from error


def rename_on_disk(temporary: Path, path: Path) -> None:
    """Rename a complete file; it and its new name are on the disk afterwards."""
    _sync(temporary)
    temporary.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_depth(path: Path) -> None:
    """Raise an error before rmtree, which calls itself for each level, has removed a part."""
    level = [os.fspath(path)]
    for _ in range(_MAX_DEPTH):
        entries = [entry for folder in level for entry in os.scandir(folder)]
        level = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        if not level:
            return
    raise MMHashError(f"{path} cannot be removed (more than {_MAX_DEPTH} levels): remove it")


def _checksum(payload: bytes | memoryview, purpose: str) -> bytes:
    return blake3(payload, key=blake3(purpose.encode()).digest()).digest()
