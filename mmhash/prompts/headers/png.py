"""The header of a PNG, and the chunks that state an orientation, even after the image data."""

import struct
import zlib
from collections.abc import Iterator

from mmhash.errors import LimitError
from mmhash.prompts.headers.exif import find_orientation
from mmhash.prompts.headers.header import ImageHeader, check_steps, unreadable

_RGB = 2  # a colour type

_CHUNK = struct.Struct(">L4s")

# Pillow's limit for a compressed text.
_MAX_TEXT = 1 << 20
# The most texts that may state an orientation. A file usually has one, and each text may inflate to
# _MAX_TEXT bytes.
_MAX_TEXTS = 8

_RAW_EXIF, _XMP = b"Raw profile type exif", b"XML:com.adobe.xmp"
_TEXTS = {b"tEXt", b"zTXt", b"iTXt"}
# Pillow reads a text named exif like an eXIf chunk, and a text named xmp like XMP.
_NAMES = {_RAW_EXIF, _XMP, b"exif", b"xmp"}


def read(data: memoryview) -> ImageHeader:
    """Return the header of a PNG."""
    length, name = _CHUNK.unpack_from(data, 8)
    if name != b"IHDR" or length < 13:
        raise unreadable("the PNG does not begin with IHDR")
    width, height = struct.unpack_from(">LL", data, 16)
    orientation, is_keyed = _read_chunks(data, 8 + 12 + length)
    return ImageHeader("PNG", width, height, orientation, data[25] == _RGB, is_keyed)


def _read_chunks(data: memoryview, position: int) -> tuple[int, bool]:
    """Read the first image's chunks: return the orientation, and True if there is a tRNS chunk."""
    found: dict[bytes, bytes] = {}
    texts = 0
    has_data = is_keyed = False
    for name, chunk in _chunks(data, position):
        if name == b"IHDR":
            raise unreadable("the PNG has two IHDR chunks")
        if name == b"IDAT":
            has_data = True
        elif name == b"tRNS":
            is_keyed = True
        elif name == b"eXIf":
            found[b"exif"] = bytes(chunk)
        elif name in _TEXTS:
            keyword, _, content = bytes(chunk).partition(b"\0")
            if keyword in _NAMES:
                texts += 1
                if texts > _MAX_TEXTS:
                    raise LimitError(f"the PNG has more than {_MAX_TEXTS} texts of EXIF or XMP")
                text = _read_text(name, content)
                if text is not None:
                    found[keyword] = text
    if not has_data:
        raise unreadable("the PNG has no image data")
    return _orientation_of(found), is_keyed


def _chunks(data: memoryview, position: int) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the chunks of a PNG's first image, including the chunks after its data."""
    steps = frames = controls = 0
    has_data = False
    # Pillow accepts a truncated last IDAT if it has all pixels.
    while position + 8 <= len(data):
        steps += 1
        check_steps(steps)
        length, name = _CHUNK.unpack_from(data, position)
        end = position + 8 + length
        if name == b"IEND" or (end > len(data) and name != b"IDAT"):
            return
        if name == b"IDAT":
            has_data = True
        elif name == b"acTL":
            frames = struct.unpack_from(">L", data, position + 8)[0] if length >= 8 else 0
        elif name == b"fcTL":
            controls += 1
            # All further chunks belong to another frame.
            if has_data and (frames > 1 or (frames == 1 and controls == 1)):
                return
        yield name, data[position + 8 : end]
        position = end + 4


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
        raise LimitError(f"the PNG has a text of more than {_MAX_TEXT} bytes")
    return text


def _orientation_of(found: dict[bytes, bytes]) -> int:
    exif = found.get(b"exif")
    if exif is None and _RAW_EXIF in found:
        try:
            exif = bytes.fromhex("".join(found[_RAW_EXIF].decode("latin-1").split("\n")[3:]))
        except ValueError:
            return 1
    return find_orientation(exif, found.get(_XMP) or found.get(b"xmp"))
