"""The header of a TIFF or BigTIFF: its first directory, in either byte order."""

from mmhash.prompts.headers.exif import ORIENTATION, clamp, find_orientation
from mmhash.prompts.headers.header import ImageHeader, unreadable
from mmhash.prompts.headers.ifd import read_directory, start_of_directory

_WIDTH, _HEIGHT, _XMP = 0x0100, 0x0101, 700
_PHOTOMETRIC, _SAMPLES = 0x0106, 0x0115
_RGB = 2
_TAGS = {_WIDTH, _HEIGHT, ORIENTATION, _XMP, _PHOTOMETRIC, _SAMPLES}


def read(data: memoryview) -> ImageHeader:
    """Return the header of a TIFF."""
    order, big, start = start_of_directory(data[:16])
    tags = read_directory(data, order, big, start, _TAGS)
    width, height = tags.get(_WIDTH), tags.get(_HEIGHT)
    if not isinstance(width, int) or not isinstance(height, int):
        raise unreadable("the TIFF does not state a width and a height")
    xmp = tags.get(_XMP)
    if ORIENTATION in tags:
        orientation = clamp(tags[ORIENTATION])
    else:
        orientation = find_orientation(None, xmp if isinstance(xmp, bytes) else None)
    samples, photometric = tags.get(_SAMPLES, 1), tags.get(_PHOTOMETRIC, 0)
    is_rgb = False if samples == 1 else (True if (samples, photometric) == (3, _RGB) else None)
    return ImageHeader("TIFF", width, height, orientation, is_rgb)
