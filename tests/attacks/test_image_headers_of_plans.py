"""An image whose header is long, lies about its size, or hides its orientation in a bomb.

A plan reads headers only, and a limited number of their parts. An ambiguous header is refused.
"""

import struct
import zlib

import pytest

from mmhash import LimitError, MMHashError
from mmhash.prompts.headers import ImageHeader, ImageHeaderError, read_size
from mmhash.prompts.headers.header import MAX_STEPS

JPEG_START, JPEG_FRAME = b"\xff\xd8", b"\xff\xc0\0\x0b\x08\0\x05\0\x03\x01\x01\x11\0"
PNG_START = b"\x89PNG\r\n\x1a\n"
VP8X = b"VP8X\x0a\0\0\0\x0c\0\0\0\x02\0\0\x04\0\0"


def chunk(name: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">L", len(content)) + name + content + bytes(4)


IHDR = chunk(b"IHDR", struct.pack(">LLBBBBB", 3, 5, 8, 0, 0, 0, 0))

LONG = {
    "jpeg segments": JPEG_START + b"\xff\xe2\0\x02" * (MAX_STEPS + 1) + JPEG_FRAME,
    "jpeg junk": JPEG_START + b"\xff\xe2\0\x02" + bytes(MAX_STEPS + 1) + JPEG_FRAME,
    "jpeg padding": JPEG_START + b"\xff" * (MAX_STEPS + 2) + JPEG_FRAME[1:],
    "png chunks": PNG_START + IHDR + chunk(b"teSt") * 500_000 + chunk(b"IDAT", b"a"),
    "gif blocks": b"GIF89a\x03\0\x05\0\0\0\0!\xfe" + b"\x01a" * (MAX_STEPS + 1) + b"\0,",
    "gif junk": b"GIF89a\x03\0\x05\0\0\0\0" + bytes(MAX_STEPS + 1),
    "webp chunks": b"RIFF" + struct.pack("<L", 1 << 30) + b"WEBP" + VP8X + b"abcd\0\0\0\0" * (MAX_STEPS + 1),
}  # fmt: skip


@pytest.mark.parametrize("data", LONG.values(), ids=LONG)
def test_endless_header_is_refused(data: bytes) -> None:
    with pytest.raises(LimitError, match="parts"):
        read_size(data)


def test_text_bomb_is_not_inflated() -> None:
    bomb = b"Raw profile type exif\0\0" + zlib.compress(bytes(64 << 20))
    with pytest.raises(LimitError, match="text"):
        read_size(PNG_START + IHDR + chunk(b"zTXt", bomb) + chunk(b"IDAT", b"a"))


def test_many_texts_are_not_all_inflated() -> None:
    text = b"XML:com.adobe.xmp\0\x01\0\0\0" + zlib.compress(bytes(1 << 20))
    with pytest.raises(LimitError, match="texts"):
        read_size(PNG_START + IHDR + chunk(b"iTXt", text) * 500 + chunk(b"IDAT", b"a"))


LYING = {
    "jpeg": JPEG_START + JPEG_FRAME.replace(b"\0\x05\0\x03", b"\xff\xff\xff\xff") + b"\xff\xda\0\x02",
    "png": PNG_START + IHDR.replace(struct.pack(">LL", 3, 5), b"\x7f\xff\xff\xff" * 2) + chunk(b"IDAT"),
    "webp": b"RIFF" + struct.pack("<L", 22) + b"WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xff" * 6,
    "bmp": b"BM" + bytes(12) + struct.pack("<LLL", 40, 1 << 31, 1 << 31) + bytes(28),
    "tiff": b"II*\0" + struct.pack("<LH", 8, 2)
    + struct.pack("<HHLL", 256, 4, 1, 1 << 31) + struct.pack("<HHLL", 257, 4, 1, 1 << 31),
}  # fmt: skip


@pytest.mark.parametrize("data", LYING.values(), ids=LYING)
def test_size_beyond_the_limit_is_refused(data: bytes) -> None:
    with pytest.raises(LimitError, match="pixels"):
        read_size(data)


def test_two_sizes_in_one_header_are_refused() -> None:
    for data in (
        JPEG_START + JPEG_FRAME + JPEG_FRAME.replace(b"\0\x05", b"\0\x09") + b"\xff\xda\0\x02",
        PNG_START + IHDR + IHDR + chunk(b"IDAT", b"a"),
    ):
        with pytest.raises(ImageHeaderError, match="two"):
            read_size(data)


GIF_START, GIF_FRAME = b"GIF87a\x03\0\x05\0\0\0\0", b",\0\0\0\0\x03\0\x05\0\0\x02\0;"
NETSCAPE = b"!\xff\x0bNETSCAPE2.0"


@pytest.mark.parametrize("extension", [b"!\x01\0", b"!\xf9\0", b"!\xff\0", NETSCAPE + b"\0"])
def test_gif_extension_without_content_is_refused(extension: bytes) -> None:
    """Pillow takes the bytes behind its end as more of it, so another frame is its first."""
    hidden = b"\x0b,\0\0\0\0\x40\0\x40\0\0"
    with pytest.raises(ImageHeaderError, match="no content"):
        read_size(GIF_START + extension + hidden + GIF_FRAME)


@pytest.mark.parametrize("extension", [b"!\xfe\0", NETSCAPE + b"\x03\1\0\0\0"])
def test_other_gif_extensions_are_read(extension: bytes) -> None:
    assert read_size(GIF_START + extension + GIF_FRAME) == ImageHeader("GIF", 3, 5)


def test_directory_that_claims_billions_of_entries() -> None:
    data = b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, 1 << 63) + bytes(20 * 1000)
    with pytest.raises(MMHashError):
        read_size(data)
