"""Opens and decodes image files with Pillow, and converts its errors to mmhash's."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import TYPE_CHECKING, NamedTuple

from mmhash.digest import Digest
from mmhash.errors import InputTypeError, InputValueError, LimitError, MMHashError, is_shortage
from mmhash.framing import frame
from mmhash.image import FORMATS, read_image, read_orientation

if TYPE_CHECKING:
    from PIL import Image


class NotAnImageError(InputTypeError):
    """A file is not in a supported image format."""


class DecodedImage(NamedTuple):
    """The content of an image file, and the orientation that an engine may apply."""

    frames: int
    pixels: bytes | bytearray
    descriptions: bytes
    """The mode, size, palette and transparency of each frame."""
    exif_orientation: int

    def key(self, digest: Digest, *, tenant: bytes | None = None) -> Digest:
        """Return the key of the image, given the digest of its pixels."""
        return frame("image", "", (self.frames,), digest, self.descriptions, tenant=tenant)


def read_image_file(file: BufferedReader) -> DecodedImage:
    """Decode the image in `file`.

    Raise a LimitError if all frames together have too many pixels.
    """
    with open_image(file) as image:
        return DecodedImage(*read_image(image), read_orientation(image))


@contextmanager
def open_image(file: BufferedReader) -> Iterator["Image.Image"]:
    """Open the image in `file`; convert all of Pillow's errors, including later ones."""
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  (not needed for bytes)

    try:
        with Image.open(file, formats=FORMATS) as image:
            yield image
    except MMHashError:
        raise
    except UnidentifiedImageError as error:
        raise NotAnImageError(f"not an image of {', '.join(FORMATS)}") from error
    except Image.DecompressionBombError as error:
        raise LimitError(str(error)) from error
    except Exception as error:  # Pillow's parsers raise many kinds of errors
        if is_shortage(error):
            raise
        raise InputValueError(f"a damaged image: {error}") from error
