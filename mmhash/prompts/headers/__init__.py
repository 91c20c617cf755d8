"""Sizes of images, read from their headers without decoding a pixel.

`read_size` returns the size and orientation that Pillow would return, because engines open images
with Pillow. A header that two readers could understand differently is refused: with a wrong size, a
plan would name blocks that no engine has.
"""

import re
import struct
from collections.abc import Callable

from mmhash.errors import InputTypeError, LimitError
from mmhash.image import PILLOW_MAX_PIXELS
from mmhash.prompts.headers import bmp, gif, jpeg, png, tiff, webp
from mmhash.prompts.headers.header import ImageHeader, ImageHeaderError, engine_size, unreadable

__all__ = ["ImageHeader", "ImageHeaderError", "engine_size", "read_size"]

# How the files of each format begin, and the function that reads the header.
_FORMATS: tuple[tuple[re.Pattern[bytes], Callable[[memoryview], ImageHeader]], ...] = (
    (re.compile(rb"\xff\xd8\xff"), jpeg.read),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), png.read),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), webp.read),
    (re.compile(rb"GIF8[79]a"), gif.read),
    (re.compile(rb"BM"), bmp.read),
    (re.compile(rb"MM\0[*+]|II[*+]\0|MM\*\0|II\0\*"), tiff.read),
)


def read_size(data: bytes | bytearray | memoryview) -> ImageHeader:
    """Return the header of an image file. For most formats the data may end after the header."""
    try:
        view = memoryview(data).cast("B")
    except TypeError as error:  # a strided view raises it too
        raise InputTypeError(f"data must be contiguous bytes: {error}") from None
    start = bytes(view[:16])
    read = next((read for begins, read in _FORMATS if begins.match(start)), None)
    if read is None:
        raise unreadable("plans read JPEG, PNG, WebP, GIF, BMP and TIFF only")
    try:
        header = read(view)
    except (IndexError, struct.error) as error:
        raise unreadable("the file is truncated") from error
    if header.width < 1 or header.height < 1:
        raise unreadable("the image has no pixels")
    if header.width * header.height > PILLOW_MAX_PIXELS:
        raise LimitError(f"the image claims more than {PILLOW_MAX_PIXELS} pixels")
    return header
