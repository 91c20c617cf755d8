"""Image files opened with Pillow, whose errors become those of mmhash."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import TYPE_CHECKING

from mmhash.errors import InputTypeError, InputValueError, LimitError, MMHashError
from mmhash.image import FORMATS

if TYPE_CHECKING:
    from PIL import Image


class NotAnImageError(InputTypeError):
    """A file is of no format that is read as an image."""


@contextmanager
def open_image(file: BufferedReader) -> Iterator["Image.Image"]:
    """Open the image in `file`; convert all errors of Pillow, also later ones, to mmhash's."""
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
    except Exception as error:  # each of Pillow's parsers raises its own kinds
        raise InputValueError(f"a damaged image: {error}") from error
