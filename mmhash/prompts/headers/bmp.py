"""The header of a BMP, in the versions that Pillow supports."""

import struct

from mmhash.prompts.headers.header import ImageHeader, unreadable

_SMALL = 12
_RGB_BITS = {16, 24}
_SIZES = {40, 52, 56, 64, 108, 124}


def read(data: memoryview) -> ImageHeader:
    """Return the header of a BMP."""
    (size,) = struct.unpack_from("<L", data, 14)
    if 14 + size > len(data):
        raise unreadable("the file is truncated")
    if size == _SMALL:
        width, height, _, bits = struct.unpack_from("<4H", data, 18)
        return ImageHeader("BMP", width, height, is_rgb=bits in _RGB_BITS)
    if size not in _SIZES:
        raise unreadable(f"Pillow supports no BMP with a header of {size} bytes")
    width, height = struct.unpack_from("<LL", data, 18)
    if data[25] == 0xFF:  # the height is negative if rows start at the top
        height = (1 << 32) - height
    bits, compression = struct.unpack_from("<HL", data, 28)
    # A BMP of 32 bits may have masks, including one for transparency.
    is_rgb = None if bits == 32 or (bits in _RGB_BITS and compression) else bits in _RGB_BITS
    return ImageHeader("BMP", width, height, is_rgb=is_rgb)
