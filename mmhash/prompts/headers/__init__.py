"""Sizes of images from their headers, without a decoded pixel; Pillow checks EXIF that turns them.

`read_size` reads the size and the orientation that Pillow would give, because the engines open
images with Pillow. A header on which readers may differ is refused: a plan with a wrong size would
name blocks that no engine has.
"""

import struct
from collections.abc import Callable

from mmhash.errors import InputTypeError, LimitError
from mmhash.image import PILLOW_MAX_PIXELS
from mmhash.prompts.headers import avif, bmp, gif, jpeg, png, tiff, webp
from mmhash.prompts.headers.engine_sizes import engine_size
from mmhash.prompts.headers.header import ImageHeader, ImageHeaderError, unreadable

__all__ = ["ImageHeader", "ImageHeaderError", "engine_size", "read_size"]

_Accept = Callable[[bytes], bool]
_Read = Callable[[memoryview], ImageHeader]

_READERS: tuple[tuple[_Accept, _Read], ...] = tuple(
    (reader.accepts, reader.read) for reader in (jpeg, png, webp, gif, bmp, tiff, avif)
)


def read_size(data: bytes | bytearray | memoryview) -> ImageHeader:
    """Return the header of an image file; the data may end after the header for most formats."""
    try:
        view = memoryview(data).cast("B")
    except TypeError as error:  # also of a strided view
        raise InputTypeError(f"data is contiguous bytes: {error}") from None
    start = bytes(view[:16])
    read = next((read for accepts, read in _READERS if accepts(start)), None)
    if read is None:
        raise unreadable("it is none of JPEG, PNG, WebP, GIF, BMP, TIFF and AVIF")
    try:
        header = read(view)
    except (IndexError, struct.error) as error:
        raise unreadable("the file is truncated") from error
    if header.width < 1 or header.height < 1:
        raise unreadable("the image has no pixels")
    if header.width * header.height > PILLOW_MAX_PIXELS:
        raise LimitError(f"the image claims more than {PILLOW_MAX_PIXELS} pixels")
    return header
