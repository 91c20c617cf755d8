"""The orientation in an image's EXIF or XMP, as Pillow's `getexif` finds it.

EXIF is a small TIFF file. Damaged EXIF counts as orientation 1, because engines ignore it. XMP
counts only if the EXIF has no orientation.

Engines apply the orientation with Pillow's `exif_transpose`, which fails if it cannot write every
tag back. Only Pillow knows which tags it can write, so find_orientation asks Pillow if there is an
orientation.
"""

import re
import struct
from typing import Any

from mmhash.extras import needs_extra
from mmhash.image import applied_orientation
from mmhash.prompts.headers.header import unreadable
from mmhash.prompts.headers.ifd import count_entries, read_directory, start_of_directory

ORIENTATION = 0x0112

_PREFIX = re.compile(rb"(?:Exif\0\0){1,2}")
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')

# Pointers to the directories that Pillow writes back. _INTEROP's is inside _EXIF's.
_GPS, _EXIF, _INTEROP = 0x8825, 0x8769, 0xA005

MAX_TAGS = 512
"""The most tags to ask Pillow about. Cameras write about 100."""

# The largest EXIF to read. A JPEG segment has at most 64 KiB, but some cameras use several
# segments.
_MAX_BYTES = 1 << 20


def find_orientation(exif: bytes | None, xmp: bytes | None = None) -> int:
    """Return the orientation (1 to 8) that engines apply, or 1 if it is missing or damaged."""
    value: Any = None
    content = memoryview(b"")
    if exif is not None and len(exif) > _MAX_BYTES:
        raise unreadable(f"the image has more than {_MAX_BYTES} bytes of EXIF")
    if exif is not None:
        prefix = _PREFIX.match(exif)
        content = memoryview(exif)[prefix.end() if prefix else 0 :]
        try:
            value = _read_tag(content) if content else None
        except (ValueError, struct.error):
            return 1
    if value is None and xmp is not None and (found := _XMP.search(xmp)):
        value = int(found[1])
    if clamp(value) == 1:
        return 1
    if content and _count_tags(content) > MAX_TAGS:
        raise unreadable(f"the image has an orientation and more than {MAX_TAGS} EXIF tags")
    known = {"exif": exif, "xmp": xmp}
    with needs_extra("prompts"):
        return applied_orientation({name: one for name, one in known.items() if one is not None})


def clamp(value: Any) -> int:
    """Return the orientation if it is 1 to 8, otherwise 1."""
    return int(value) if value in range(1, 9) else 1


def _count_tags(content: memoryview) -> int:
    """Count the tags of all directories that Pillow reads and writes back."""
    order, big, start = start_of_directory(content[:8])
    pointers = read_directory(content, order, big, start, {_GPS, _EXIF})
    starts = [start, *pointers.values()]
    if isinstance(inner := pointers.get(_EXIF), int):
        starts += read_directory(content, order, big, inner, {_INTEROP}).values()
    known = [one for one in starts if isinstance(one, int)]
    return sum(count_entries(content, order, big, one) for one in known)


def _read_tag(content: memoryview) -> Any:
    byte_order, big, start = start_of_directory(content[:8])
    return read_directory(content, byte_order, big, start, {ORIENTATION}).get(ORIENTATION)
