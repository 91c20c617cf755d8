"""The header of a JPEG: its segments up to the first scan."""

from collections.abc import Iterator

from mmhash.prompts.headers.exif import find_orientation
from mmhash.prompts.headers.header import ImageHeader, check_steps, unreadable

_APP1, _SCAN = 0xE1, 0xDA
# Start-of-frame markers. Pillow also treats DHP, of hierarchical files, as a start of frame.
_FRAMES = {*range(0xC0, 0xD0), 0xDE} - {0xC4, 0xC8, 0xCC}
# Markers without a length: JPG, RST0 to RST7, SOI, EOI and the extensions of JPEG.
_BARE = {0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)}
_XMP = b"http://ns.adobe.com/xap/1.0/\0"


def read(data: memoryview) -> ImageHeader:
    """Return the header of a JPEG."""
    size: tuple[int, int] | None = None
    is_rgb = False
    exif: bytes | None = None
    xmp: bytes | None = None
    for marker, segment in _segments(data):
        if marker in _FRAMES:
            frame = _read_frame(segment)
            if size is not None and size != frame:
                raise unreadable("the JPEG states two sizes")
            size, is_rgb = frame, segment[5] == 3
        elif marker == _APP1:
            content = bytes(segment)
            if content.startswith(b"Exif\0\0"):
                exif = content if exif is None else exif + content[6:]
            elif content.startswith(_XMP):
                xmp = content[len(_XMP) :]
    if size is None:
        raise unreadable("the JPEG has no frame before its first scan")
    return ImageHeader("JPEG", *size, find_orientation(exif, xmp), is_rgb)


def _segments(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the segments before the first scan. Skip junk between them, as Pillow does."""
    position, steps = 2, 0
    while True:
        steps += 1
        check_steps(steps)
        if data[position] != 0xFF:
            position += 1
            continue
        marker = data[position + 1]
        if marker in {0x00, 0xFF}:
            position += 2 if marker == 0 else 1
            continue
        position += 2
        if marker in _BARE:
            continue
        if marker < 0xC0:
            raise unreadable("the JPEG has an unknown marker")
        length = max(2, data[position] << 8 | data[position + 1])
        if position + length > len(data):
            raise unreadable("the file is truncated")
        if marker == _SCAN:
            return
        yield marker, data[position + 2 : position + length]
        position += length


def _read_frame(content: memoryview) -> tuple[int, int]:
    if content[0] != 8:
        raise unreadable("the JPEG's samples do not have 8 bits")
    if content[5] not in {1, 3, 4}:
        raise unreadable(f"the JPEG has {content[5]} components, not 1, 3 or 4")
    return content[3] << 8 | content[4], content[1] << 8 | content[2]
