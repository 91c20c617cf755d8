"""The orientation of an image by its EXIF and XMP, as Pillow's `getexif` finds it.

EXIF is a TIFF file in miniature. If it is damaged the orientation is 1, because the engines that
apply the orientation ignore a damaged one. XMP counts only if the EXIF has no orientation.
"""

import re
import struct
from typing import Any

from mmhash.prompts.headers.ifd import read_directory, start_of_directory

ORIENTATION = 0x0112

_PREFIX = re.compile(rb"(?:Exif\0\0){1,2}")
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')

# The largest EXIF that is read. A segment of a JPEG has at most 64 KiB; some cameras use several.
_MAX_BYTES = 1 << 20


def find_orientation(exif: bytes | None, xmp: bytes | None = None) -> int:
    """Return the orientation (1 to 8); 1 if there is none, or if it is damaged."""
    value: Any = None
    if exif is not None and len(exif) <= _MAX_BYTES:
        prefix = _PREFIX.match(exif)
        content = memoryview(exif)[prefix.end() if prefix else 0 :]
        try:
            value = _read_tag(content) if content else None
        except (ValueError, struct.error):
            return 1
    if value is None and xmp is not None and (found := _XMP.search(xmp)):
        value = int(found[1])
    return clamp(value)


def clamp(value: Any) -> int:
    """Return an orientation of 1 to 8; another value counts as 1."""
    return int(value) if value in range(1, 9) else 1


def _read_tag(content: memoryview) -> Any:
    byte_order, big, start = start_of_directory(content[:8])
    return read_directory(content, byte_order, big, start, {ORIENTATION}).get(ORIENTATION)
