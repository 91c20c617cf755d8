"""The header of a PNG, and what of its chunks says an orientation, also after the image data."""

import struct
import zlib

from mmhash.errors import LimitError
from mmhash.prompts.headers.exif import find_orientation
from mmhash.prompts.headers.header import ImageHeader, check_steps, unreadable

_CHUNK = struct.Struct(">L4s")

# Pillow's limit of a compressed text.
_MAX_TEXT = 1 << 20
# Texts that can have an orientation; one is usual, and each may take _MAX_TEXT to inflate.
_MAX_TEXTS = 8

_RAW_EXIF, _XMP = b"Raw profile type exif", b"XML:com.adobe.xmp"
# As names of texts, the last two take the place of an eXIf chunk and of XMP in Pillow.
_NAMES = {_RAW_EXIF, _XMP, b"exif", b"xmp"}


def accepts(start: bytes) -> bool:
    """Return True for the first bytes of a PNG."""
    return start.startswith(b"\x89PNG\r\n\x1a\n")


def read(data: memoryview) -> ImageHeader:
    """Return the header of a PNG."""
    length, name = _CHUNK.unpack_from(data, 8)
    if name != b"IHDR" or length < 13:
        raise unreadable("a PNG does not begin with IHDR")
    width, height = struct.unpack_from(">LL", data, 16)
    return ImageHeader("PNG", width, height, _find_orientation(data, 8 + 12 + length))


def _find_orientation(data: memoryview, position: int) -> int:
    """Walk over the chunks to the end of the first image."""
    found: dict[bytes, bytes] = {}
    steps = texts = 0
    frames, controls, has_data = 0, 0, False
    while position + 8 <= len(data):
        steps += 1
        check_steps(steps)
        length, name = _CHUNK.unpack_from(data, position)
        end = position + 8 + length
        if end > len(data):
            # Pillow reads an image whose last IDAT is cut, if all of its pixels are there.
            break
        if name == b"IDAT":
            has_data = True
        elif name == b"IEND":
            break
        elif name == b"IHDR":
            raise unreadable("a PNG has two IHDR chunks")
        elif name == b"acTL":
            frames = struct.unpack_from(">L", data, position + 8)[0] if length >= 8 else 0
        elif name == b"fcTL":
            controls += 1
            # What follows a later fcTL is of another frame.
            if has_data and (frames > 1 or (frames == 1 and controls == 1)):
                break
        elif name == b"eXIf":
            found[b"exif"] = bytes(data[position + 8 : end])
        elif name in {b"tEXt", b"zTXt", b"iTXt"}:
            keyword, _, content = bytes(data[position + 8 : end]).partition(b"\0")
            if keyword in _NAMES:
                texts += 1
                if texts > _MAX_TEXTS:
                    raise LimitError(f"a PNG has more than {_MAX_TEXTS} texts with an orientation")
                text = _read_text(name, content)
                if text is not None:
                    found[keyword] = text
        position = end + 4
    if not has_data:
        raise unreadable("a PNG has no image data")
    return _orientation_of(found)


def _read_text(name: bytes, content: bytes) -> bytes | None:
    if name == b"tEXt":
        return content
    if name == b"zTXt":
        return _inflate(content[1:]) or b""
    if len(content) < 2:
        return None
    compressed, method, rest = content[0], content[1], content[2:].split(b"\0", 2)
    if len(rest) < 3 or (compressed and method):
        return None
    return _inflate(rest[2]) if compressed else rest[2]


def _inflate(content: bytes) -> bytes | None:
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(content, _MAX_TEXT)
    except zlib.error:
        return None
    if inflater.unconsumed_tail:
        raise LimitError(f"a PNG has a text of more than {_MAX_TEXT} bytes")
    return text


def _orientation_of(found: dict[bytes, bytes]) -> int:
    exif = found.get(b"exif")
    if exif is None and _RAW_EXIF in found:
        try:
            exif = bytes.fromhex("".join(found[_RAW_EXIF].decode("latin-1").split("\n")[3:]))
        except ValueError:
            return 1
    return find_orientation(exif, found.get(_XMP) or found.get(b"xmp"))
