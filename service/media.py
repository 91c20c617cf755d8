"""An encoded image as its pixels. Its header is weighed before anything is decoded."""

import warnings
from io import BytesIO

from PIL import Image, UnidentifiedImageError

from mmhash.errors import InputValueError, LimitError
from mmhash.image import DAMAGE, FORMATS, read_image
from mmhash.view import View
from mmhash_service.problems import Problem

# A frame of one pixel costs Pillow far more than its pixel: the number of frames has its own limit.
MAX_FRAMES = 10_000

# Between its warning and its error Pillow allocates what a frame claims. `max_pixels` is never
# above the error, so that is the limit to see to; the warning would only fill the log.
warnings.simplefilter("ignore", Image.DecompressionBombWarning)


def read_pixels(body: BytesIO, max_pixels: int) -> View:
    """The view of the image that `body` holds: the same as the library has of it."""
    try:
        with Image.open(body, formats=FORMATS) as image:
            frames, pixels, extra = read_image(image, max_pixels=max_pixels, max_frames=MAX_FRAMES)
    except (LimitError, Image.DecompressionBombError) as error:
        raise Problem("image-too-large") from error
    except UnidentifiedImageError as error:
        raise Problem("unsupported-image") from error
    except (InputValueError, *DAMAGE) as error:
        raise Problem("damaged-image") from error
    return View("image", "", (frames,), memoryview(pixels), extra)
