"""Content by file: URL: regular files below one folder, and no link is followed on the way."""

import os
import re
import stat
from io import FileIO
from pathlib import Path, PurePosixPath
from urllib.parse import unquote_to_bytes

from mmhash_service.api.problems import Problem
from mmhash_service.fetch.failures import Failed, FetchFailure
from mmhash_service.fetch.hosts import MAX_URL

_URL = re.compile(
    r"file:(?://(?:localhost)?)?(?P<path>/(?!/)[^?#\\\x00-\x20\x7f\ud800-\udfff]*)", re.IGNORECASE
)

# Of what is no regular file, opening may wait or do something: a pipe, a terminal.
_HARMLESS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def is_file_url(url: str) -> bool:
    """Whether it is one, by its scheme."""
    return url[:5].lower() == "file:"


def open_file(url: str, root: Path | None, max_bytes: int) -> tuple[FileIO, int]:
    """The file that the URL names, and its length: for a worker."""
    found = _URL.fullmatch(url) if len(url) <= MAX_URL else None
    if found is None:
        raise Problem("invalid-url")
    if root is None:
        raise Problem("url-off")
    # Decoded once: what is encoded twice is the name of a file with a percent sign.
    path = PurePosixPath(os.fsdecode(unquote_to_bytes(found["path"])))
    if ".." in path.parts or not path.is_relative_to(root.absolute()):
        raise Problem("url-off")
    try:
        descriptor = _open_below(root, path.relative_to(root.absolute()).parts)
    except (OSError, ValueError) as error:  # a ValueError: a NUL in a name
        raise Problem("url-failed") from FetchFailure("file", error)
    status = os.fstat(descriptor)
    is_regular = stat.S_ISREG(status.st_mode)
    if is_regular and status.st_size <= max_bytes:
        return FileIO(descriptor), status.st_size
    os.close(descriptor)
    if is_regular:
        raise Problem("url-too-large")
    raise Problem("url-failed") from FetchFailure("file", Failed("not a regular one"))


def _open_below(root: Path, names: tuple[str, ...]) -> int:
    """A descriptor of the file, reached a name at a time.

    A link that is put there meanwhile is not followed either: no path is looked up twice.
    """
    at = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            below = os.open(
                name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at
            )
            os.close(at)
            at = below
        return os.open(names[-1] if names else ".", os.O_RDONLY | _HARMLESS, dir_fd=at)
    finally:
        os.close(at)
