"""A PIL image as its pixels, and what they mean: mode, size, palette and transparency.

EXIF orientation is not applied: two images that differ in it alone have one key. Of an animation
every frame counts, its timing does not.
"""

import struct
import zlib
from typing import TYPE_CHECKING, Any

from mmhash.errors import InputError, InputTypeError, InputValueError, LimitError
from mmhash.framing import field

if TYPE_CHECKING:
    from PIL import Image

# What vision servers take. Pillow knows more, and hands one of them, EPS, to another program.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")

# What Pillow's parsers trip over when the bytes are damaged, found by fuzzing.
DAMAGE = (
    ArithmeticError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)


def read_image(
    image: "Image.Image", *, max_pixels: int | None = None, max_frames: int | None = None
) -> tuple[int, bytes | bytearray, bytes]:
    """The number of frames, the pixels of all, and a description of each as the spec has it.

    Call seek() on the image, which drops edits, and leave it at the frame where it was: an image
    of somebody else's goes through `read_pil_image`. Limits are checked before pixels are read.
    """
    here = image.tell()
    try:
        count = _walk(image, max_pixels, max_frames)
        image.seek(0)
        if count == 1:
            return 1, image.tobytes(), describe(image)
        return count, *_read_frames(image, count, here)
    except InputError:
        raise
    except DAMAGE as error:
        raise InputValueError("the image is truncated or damaged: it cannot be decoded") from error


def _walk(image: "Image.Image", max_pixels: int | None, max_frames: int | None) -> int:
    """How many frames there are.

    All are visited before the first is read, for a later frame of a GIF can make the whole larger,
    and Pillow does not forget that: read at once, the same image would have two keys.
    """
    count = pixels = 0
    while True:
        try:
            image.seek(count)
        except EOFError:
            return count
        count += 1
        pixels += image.width * image.height
        if max_pixels is not None and pixels > max_pixels:
            raise LimitError(f"the image has more than {max_pixels} pixels, all frames together")
        if max_frames is not None and count > max_frames:
            raise LimitError(f"the image has more than {max_frames} frames")


def _read_frames(image: "Image.Image", count: int, here: int) -> tuple[bytearray, bytes]:
    pixels, descriptions = bytearray(), []
    for number in range(count):
        image.seek(number)
        pixels += image.tobytes()
        descriptions.append(describe(image))
    image.seek(here)
    return pixels, b"".join(descriptions)


def describe(frame: "Image.Image") -> bytes:
    """Mode, size, palette and transparency of a loaded frame, as the spec has them."""
    return b"".join(
        (
            field(frame.mode.encode()),
            struct.pack("<QQ", frame.width, frame.height),
            field(_palette(frame) if frame.mode in {"P", "PA"} else b""),
            field(spell_transparency(frame.info.get("transparency"))),
        )
    )


def _palette(frame: "Image.Image") -> bytes:
    return pad_palette(bytes(frame.getpalette("RGBA") or ()))


def pad_palette(colors: bytes) -> bytes:
    """All 256 colours: formats differ in how many unused ones they store."""
    return colors + b"\0\0\0\xff" * (256 - len(colors) // 4)


def spell_transparency(value: Any) -> bytes:
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
