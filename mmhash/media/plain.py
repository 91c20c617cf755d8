"""Plain files: one video and its sounds as muxers write them, which are read without FFmpeg."""

import mmap

Buffer = bytes | bytearray | memoryview | mmap.mmap


class UnusualError(Exception):
    """The file has another structure: FFmpeg reads it."""


def require(condition: object) -> None:
    """Leave the file to FFmpeg unless the condition is true."""
    if not condition:
        raise UnusualError
