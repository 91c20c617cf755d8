"""The caller's PIL image objects: each stands for the one frame that it shows.

An image of several frames is refused: to seek it would drop the caller's edits, and only Pillow's
private state tells what the edits were.
"""

import sys
from typing import TYPE_CHECKING, Any

from mmhash.errors import InputValueError, is_shortage
from mmhash.image import DAMAGE, describe

if TYPE_CHECKING:
    from PIL import Image


def is_image(item: Any) -> bool:
    """Return True if `item` is a PIL image; Pillow need not be installed."""
    kind = getattr(sys.modules.get("PIL.Image"), "Image", None)
    return kind is not None and isinstance(item, kind)


def check_one_frame(image: "Image.Image") -> None:
    """Refuse an image of several frames.

    Pillow goes to the second frame of a GIF and back to see that it has one, which drops an edit of
    the first.
    """
    try:
        several = getattr(image, "is_animated", False)
    except ValueError:  # a GIF whose file is closed: only the frame that it shows is left
        return
    if several:
        raise InputValueError(
            "the image has several frames: give the bytes of its file, or one frame: its copy()"
        )


def read_pil_image(image: "Image.Image") -> tuple[bytes, bytes]:
    """Return the pixels and the description of the frame that the image shows.

    An image that is not decoded yet is decoded, as by any use of its pixels.
    """
    from PIL import Image  # noqa: PLC0415  (imported already: the input is an image)

    try:
        check_one_frame(image)
        return image.tobytes(), describe(image)
    except InputValueError:
        raise
    # Pillow asserts that a file is open.
    except (AssertionError, Image.DecompressionBombError, *DAMAGE) as error:
        if is_shortage(error):
            raise
        raise InputValueError(
            f"the image cannot be read: it is damaged, or was closed before load(): {error}"
        ) from error
