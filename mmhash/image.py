"""A PIL image as its pixels, and what they mean: mode, size, palette and transparency.

EXIF orientation is not applied: two images that differ in it alone have one key. Of an animation
every frame counts, its timing does not.
"""

import struct
from typing import TYPE_CHECKING, Any

from mmhash.errors import InputTypeError, InputValueError
from mmhash.framing import field

if TYPE_CHECKING:
    from PIL import Image


def read_image(image: "Image.Image") -> tuple[int, bytes | bytearray, bytes]:
    """The number of frames, the pixels of all, and a description of each as the spec has it.

    The image is left at the frame where it was.
    """
    try:
        count = getattr(image, "n_frames", 1)
        if count == 1:
            return 1, image.tobytes(), _describe(image)
        return count, *_read_frames(image, count)
    except (OSError, EOFError, SyntaxError) as error:
        raise InputValueError("the image is truncated or damaged: it cannot be decoded") from error


def _read_frames(image: "Image.Image", count: int) -> tuple[bytearray, bytes]:
    pixels, descriptions = bytearray(), []
    here = image.tell()
    try:
        for number in range(count):
            image.seek(number)
            pixels += image.tobytes()
            descriptions.append(_describe(image))
    finally:
        image.seek(here)
    return pixels, b"".join(descriptions)


def _describe(frame: "Image.Image") -> bytes:
    return b"".join(
        (
            field(frame.mode.encode()),
            struct.pack("<QQ", frame.width, frame.height),
            field(_palette(frame) if frame.mode in {"P", "PA"} else b""),
            field(_transparency(frame.info.get("transparency"))),
        )
    )


def _palette(frame: "Image.Image") -> bytes:
    """All 256 colours: formats differ in how many unused ones they store."""
    colors = bytes(frame.getpalette("RGBA") or ())
    return colors + b"\0\0\0\xff" * (256 - len(colors) // 4)


def _transparency(value: Any) -> bytes:
    """Pillow gives one index or level, a table of bytes, or a colour, by format and mode."""
    match value:
        case None:
            return b""
        case bytes():
            return b"table" + value
        case int():
            return b"index" + struct.pack("<Q", value)
        case tuple():
            return b"color" + struct.pack(f"<{len(value)}Q", *value)
        case _:
            raise InputTypeError(f"an image's transparency cannot be {type(value).__name__}")
