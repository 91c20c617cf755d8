"""The header of a WebP: a lossy image, a lossless image, or a canvas with chunks."""

import struct

from mmhash.prompts.headers.exif import find_orientation
from mmhash.prompts.headers.header import ImageHeader, check_steps, unreadable

_IS_ANIMATION, _HAS_XMP, _HAS_EXIF, _HAS_ALPHA = 0x02, 0x04, 0x08, 0x10


def read(data: memoryview) -> ImageHeader:
    """Return the header of a WebP."""
    match bytes(data[12:16]):
        case b"VP8 ":
            if bytes(data[23:26]) != b"\x9d\x01\x2a":
                raise unreadable("the WebP does not begin with a key frame")
            width, height = struct.unpack_from("<HH", data, 26)
            return ImageHeader("WEBP", width & 0x3FFF, height & 0x3FFF, is_rgb=True)
        case b"VP8L":
            if data[20] != 0x2F:
                raise unreadable("the lossless WebP has no signature")
            (bits,) = struct.unpack_from("<L", data, 21)
            is_rgb = not bits >> 28 & 1
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
            return ImageHeader("WEBP", width, height, is_rgb=is_rgb)
        case b"VP8X":
            return _read_canvas(data)
    raise unreadable("the WebP has neither an image nor a canvas")


def _read_canvas(data: memoryview) -> ImageHeader:
    flags = data[20]
    width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    if len(data) < 30:
        raise unreadable("the file is truncated")
    exif = _find_chunk(data, b"EXIF") if flags & _HAS_EXIF else None
    xmp = _find_chunk(data, b"XMP ") if flags & _HAS_XMP else None
    # An empty chunk counts as missing.
    orientation = find_orientation(exif or None, xmp or None)
    return ImageHeader("WEBP", width, height, orientation, _is_rgb(data))


def _is_rgb(data: memoryview) -> bool | None:
    """Return True if a canvas has no transparency. Its flag may contradict its image's flag."""
    is_opaque = not data[20] & _HAS_ALPHA
    if data[20] & _IS_ANIMATION:
        return is_opaque
    is_lossless = _find_chunk(data, b"VP8L") is not None
    return None if is_lossless or (is_opaque and _find_chunk(data, b"ALPH")) else is_opaque


def _find_chunk(data: memoryview, name: bytes) -> bytes | None:
    """Return the first chunk with this name, or None."""
    end = min(len(data), 8 + struct.unpack_from("<L", data, 4)[0])
    position, steps = 12, 0
    while position + 8 <= end:
        steps += 1
        check_steps(steps)
        kind, length = struct.unpack_from("<4sL", data, position)
        if position + 8 + length > end:
            raise unreadable("the file is truncated")
        if kind == name:
            return bytes(data[position + 8 : position + 8 + length])
        position += 8 + length + (length & 1)
    return None
