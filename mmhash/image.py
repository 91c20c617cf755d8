"""The content of an image as the spec defines it: pixels, and a description of each frame.

`read_image` seeks, so pass only images that mmhash itself opened. pil_image.py reads callers'
images.

EXIF orientation is not applied: images that differ only in orientation have the same key. Every
frame of an animation counts, but not its timing. Engines that apply the orientation get a name that
includes it (engines.options).
"""

import struct
import zlib
from typing import TYPE_CHECKING, Any

from mmhash.errors import InputError, InputTypeError, InputValueError, LimitError, is_shortage
from mmhash.fields import field

if TYPE_CHECKING:
    from PIL import Image

# The formats that vision servers accept. Pillow supports more, and starts another program for EPS.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")

# Like the engines, Pillow refuses an image whose first frame has more pixels. Pillow does not limit
# all frames together, so a tiny GIF could exhaust memory.
PILLOW_MAX_PIXELS = 178_956_970

# Exceptions that Pillow's parsers raise for damaged bytes, found by fuzzing.
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
    image: "Image.Image", *, max_pixels: int = PILLOW_MAX_PIXELS
) -> tuple[int, bytes | bytearray, bytes]:
    """Return the number of frames, their pixels, and their descriptions as the spec defines them.

    The limit is checked before any pixel is read. Afterwards the image is at its first frame.
    """
    try:
        count = _walk(image, max_pixels)
        image.seek(0)
        if count == 1:
            return 1, image.tobytes(), describe(image)
        return count, *_read_frames(image, count)
    except InputError:
        raise
    except DAMAGE as error:
        if is_shortage(error):
            raise
        raise InputValueError("the image is truncated or damaged: it cannot be decoded") from error


def _walk(image: "Image.Image", max_pixels: int) -> int:
    """Visit all frames; return how many there are.

    Every frame is visited before the first is read: a later frame of a GIF can enlarge the canvas,
    and Pillow keeps the larger size. Otherwise the same image could have two keys.
    """
    count = pixels = 0
    while True:
        try:
            image.seek(count)
        except EOFError:
            return count
        count += 1
        pixels += image.width * image.height
        if pixels > max_pixels:
            raise LimitError(f"the image has more than {max_pixels} pixels, all frames together")


def _read_frames(image: "Image.Image", count: int) -> tuple[bytearray, bytes]:
    pixels, descriptions = bytearray(), []
    for number in range(count):
        image.seek(number)
        pixels += image.tobytes()
        descriptions.append(describe(image))
    image.seek(0)
    return pixels, b"".join(descriptions)


def read_orientation(image: "Image.Image") -> int:
    """Return the EXIF orientation that an engine applies to the first frame, or 1.

    The image must be at its first frame.
    """
    if image.format == "TIFF":  # Pillow has already rotated the image
        return 1
    if image.format == "PNG":
        image.load()  # the orientation may follow the pixels
    return applied_orientation(image.info)


def applied_orientation(info: dict[Any, Any]) -> int:
    """Return the EXIF orientation that an engine applies to an image with this metadata.

    Engines call Pillow's `exif_transpose` on a newly opened file and ignore failures, such as a tag
    that Pillow cannot write again. This function calls it on a single pixel.
    """
    from PIL import ExifTags, Image, ImageOps  # noqa: PLC0415  (an extra)

    pixel = Image.new("1", (1, 1))
    pixel.info = info.copy()
    try:
        orientation: Any = pixel.getexif().get(ExifTags.Base.Orientation)
        if orientation not in range(2, 9):
            return 1
        ImageOps.exif_transpose(pixel)
        return int(orientation)
    except Exception:  # noqa: BLE001  (any, as in vLLM)
        return 1


def describe(frame: "Image.Image") -> bytes:
    """Return the mode, size, palette and transparency of a loaded frame as in the spec."""
    return b"".join(
        (
            field(frame.mode.encode()),
            struct.pack("<QQ", frame.width, frame.height),
            field(_palette(frame) if frame.mode in {"P", "PA"} else b""),
            field(encode_transparency(frame.info.get("transparency"))),
        )
    )


def _palette(frame: "Image.Image") -> bytes:
    return pad_palette(bytes(frame.getpalette("RGBA") or ()))


def pad_palette(colors: bytes) -> bytes:
    """Pad a palette to 256 colours: formats differ in how many unused colours they store."""
    return colors + b"\0\0\0\xff" * (256 - len(colors) // 4)


def encode_transparency(value: Any) -> bytes:
    """Encode Pillow's transparency: an index or level, a table of bytes, or a colour."""
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
