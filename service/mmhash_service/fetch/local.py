"""Content of file: URLs: regular files below one directory, reached without following links."""

import os
import re
import stat
from io import FileIO
from pathlib import Path, PurePosixPath
from urllib.parse import unquote_to_bytes

from mmhash_service.fetch.hosts import MAX_URL
from mmhash_service.fetch.remote import Failed, FetchFailure
from mmhash_service.problems.problem import Problem

_URL = re.compile(
    r"file:(?://(?:localhost)?)?(?P<path>/(?!/)[^?#\\\x00-\x20\x7f\ud800-\udfff]*)", re.IGNORECASE
)

# Opening a file that is not regular, such as a pipe or terminal, must neither block nor have side
# effects.
_SAFE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def is_file_url(url: str) -> bool:
    """Return True if the scheme is file:."""
    return url[:5].lower() == "file:"


def open_file(url: str, root: Path | None, max_bytes: int) -> tuple[FileIO, int]:
    """Return the file that the URL names, and its length; run this in a thread."""
    match = _URL.fullmatch(url) if len(url) <= MAX_URL else None
    if match is None:
        reason = "a file: URL is file:///, and a path without query, space or backslash"
        raise Problem("invalid-url", reason=reason)
    if root is None:
        raise Problem("url-off", reason="the URL is of file:, and file_root is not set")
    # Decode only once: a doubly encoded path names a file with a percent sign.
    path = PurePosixPath(os.fsdecode(unquote_to_bytes(match["path"])))
    if ".." in path.parts or not path.is_relative_to(root.absolute()):
        raise Problem("url-off", reason="the file: URL is not below file_root")
    try:
        descriptor = _open_below(root, path.relative_to(root.absolute()).parts)
    except (OSError, ValueError) as error:  # ValueError: NUL in a name
        raise Problem("url-failed") from FetchFailure("file", error)
    status = os.fstat(descriptor)
    is_regular = stat.S_ISREG(status.st_mode)
    if is_regular and status.st_size <= max_bytes:
        return FileIO(descriptor), status.st_size
    os.close(descriptor)
    if is_regular:
        raise Problem("body-too-large", reason="the file is too long")
    raise Problem("url-failed") from FetchFailure("file", Failed("not a regular file"))


def _open_below(root: Path, names: tuple[str, ...]) -> int:
    """Open the file one path component at a time, and return its descriptor.

    No component is resolved twice, so even a link that appears meanwhile is not followed.
    """
    directory = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            child = os.open(name, flags, dir_fd=directory)
            os.close(directory)
            directory = child
        return os.open(names[-1] if names else ".", os.O_RDONLY | _SAFE_FLAGS, dir_fd=directory)
    finally:
        os.close(directory)
