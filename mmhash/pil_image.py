"""The caller's PIL image objects. Each stands for the frame that it currently shows.

Images with several frames are refused: seeking would drop the caller's edits, and only Pillow's
private state shows whether there are any.
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
    """Refuse an image with several frames.

    To find out whether a GIF has a second frame, Pillow seeks there and back, which drops edits of
    the first frame.
    """
    try:
        several = getattr(image, "is_animated", False)
    except ValueError:  # a GIF whose file is closed has only the frame that it shows
        return
    if several:
        raise InputValueError(
            "the image has several frames: give the bytes of its file, or the copy() of one frame"
        )


def read_pil_image(image: "Image.Image") -> tuple[bytes, bytes]:
    """Return the pixels and the description of the frame that the image shows.

    Like any use of its pixels, this decodes an image that is not decoded yet.
    """
    from PIL import Image  # noqa: PLC0415  (imported already: the input is an image)

    try:
        check_one_frame(image)
        return image.tobytes(), describe(image)
    except InputValueError:
        raise
    # Pillow asserts that the file is open.
    except (AssertionError, Image.DecompressionBombError, *DAMAGE) as error:
        if is_shortage(error):
            raise
        raise InputValueError(
            f"the image cannot be read: it is damaged, or was closed before load(): {error}"
        ) from error
