"""An image file opened by Pillow, for the commands that read pixels."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import TYPE_CHECKING

from mmhash.errors import InputTypeError, InputValueError, LimitError, MMHashError
from mmhash.image import FORMATS

if TYPE_CHECKING:
    from PIL import Image


@contextmanager
def open_image(file: BufferedReader) -> Iterator["Image.Image"]:
    """The image in `file`; whatever Pillow trips over, also later, is an error of ours."""
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  (not needed for bytes)

    try:
        with Image.open(file, formats=FORMATS) as image:
            yield image
    except MMHashError:
        raise
    except UnidentifiedImageError as error:
        raise InputTypeError(f"not an image of {', '.join(FORMATS)}") from error
    except Image.DecompressionBombError as error:
        raise LimitError(str(error)) from error
    except Exception as error:  # as many kinds as Pillow has parsers
        raise InputValueError(f"a damaged image: {error}") from error
