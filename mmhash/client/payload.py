"""Items as the client sends them: kind and bytes, not copied if they are on the host."""

from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mmhash.errors import InputTypeError, InputValueError, MMHashError
from mmhash.image import DAMAGE, read_orientation
from mmhash.io.files import map_file
from mmhash.pil_image import check_one_frame, is_image
from mmhash.view import view_of

Of = Literal["bytes", "pixels"]

_ORIENTATION = 0x0112

# The modes that a PNG preserves, for images with an orientation: Pillow turns such a TIFF.
_PNG_MODES = frozenset({"1", "L", "LA", "RGB", "RGBA", "I;16"})

# The modes that a TIFF preserves. It may change a palette: such images are refused.
_MODES = frozenset({"1", "L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I", "F", "I;16"})

_SAMPLE_BYTES = {"I": 4, "F": 4, "I;16": 2}


class Payload(NamedTuple):
    """One item. The content of an image is its file, and its pixels are hashed.

    `shape` and `nbytes` are those that its response must have; None if decoding determines them.
    """

    kind: Literal["bytes", "tensor", "image"]
    dtype: str
    shape: tuple[int, ...] | None
    content: memoryview
    nbytes: int | None


def payload_of(item: Any, of: Of) -> Payload:
    """Return the payload of an item; with `of="pixels"` plain bytes are the file of an image."""
    if isinstance(item, PathLike):
        item = _read(item)
    if is_image(item):
        return Payload("image", "", (1,), _encode_image(item), _pixel_bytes(item))
    view = view_of(item)
    content = view.on_host()
    if view.kind == "tensor":
        return Payload("tensor", view.dtype, view.shape, content, len(content))
    if of == "pixels":
        return Payload("image", "", None, content, None)
    return Payload("bytes", "", (), content, len(content))


def _read(path: PathLike[str]) -> memoryview | bytes:
    with Path(path).open("rb") as file:
        return map_file(file) or file.read()


def _pixel_bytes(image: Any) -> int:
    """Return the length of an image's pixels; rows of a bilevel image are padded to whole bytes."""
    width, height = image.size
    if image.mode == "1":
        return int((width + 7) // 8 * height)
    return int(width * height * len(image.getbands()) * _SAMPLE_BYTES.get(image.mode, 1))


def _encode_image(image: Any) -> memoryview:
    try:
        return _encode(image)
    except MMHashError:
        raise
    except DAMAGE as error:
        raise InputValueError(f"the image cannot be sent: {error}") from error


def _encode(image: Any) -> memoryview:
    """Encode an image as an uncompressed TIFF: a PNG takes far longer, even uncompressed."""
    if image.mode not in _MODES or "transparency" in image.info:
        raise InputTypeError(
            f"an image of mode {image.mode}, with a palette or with a transparent colour, cannot"
            " be sent: convert it, or pass the bytes of its file with of='pixels'"
        )
    check_one_frame(image)
    pixels = image.copy()
    orientation = read_orientation(pixels)
    pixels.info.clear()  # so that no metadata of its file, such as a rotation, is applied
    file = BytesIO()
    if orientation == 1:
        pixels.save(file, "TIFF", compression="raw")
    elif image.mode in _PNG_MODES:
        pixels.getexif()[_ORIENTATION] = orientation
        pixels.save(file, "PNG", exif=pixels.getexif(), compress_level=0)
    else:
        raise InputTypeError(
            f"an image of mode {image.mode} with EXIF orientation {orientation} cannot be sent:"
            " turn it with PIL.ImageOps.exif_transpose, or pass the bytes of its file with"
            " of='pixels'"
        )
    return memoryview(file.getvalue())  # no copy
