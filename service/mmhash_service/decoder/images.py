"""Decodes and hashes an image, after checking its headers."""

import warnings
from collections.abc import Callable, Iterator
from io import BytesIO

from PIL import GifImagePlugin, Image, ImageFile, PngImagePlugin, UnidentifiedImageError

from mmhash.cpu import Hasher
from mmhash.digest import Algorithm
from mmhash.errors import InputTypeError, LimitError
from mmhash.image import DAMAGE, FORMATS, PILLOW_MAX_PIXELS, describe, read_orientation
from mmhash_service.decoder.messages import MAX_EXTRA, MAX_FRAMES, Decoded, Refused

# Larger images are hashed in bands, which saves a copy of all pixels. For smaller images the copy
# is cheaper than the bands.
_BAND_PIXELS = 1 << 20

# Pillow decodes run-length encoded BMPs in Python, pixel by pixel, and a file of 1 kB can claim
# 178956970 pixels. Valid files come near this limit, because a skipped row takes only 2 bytes.
_RLE_PIXELS_PER_BYTE = 4096

_TILE_WIDTH, _TILE_LENGTH = 322, 323

Grow = Callable[[int, int], None]
"""Called with the frames and pixels so far, before the last of these frames is decoded."""


class CostlyError(Exception):
    """Decoding the image would take more work than its size justifies."""


def pin_pillow() -> None:
    """Set Pillow's global options that affect pixels or limits."""
    Image.MAX_IMAGE_PIXELS = PILLOW_MAX_PIXELS
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    GifImagePlugin.LOADING_STRATEGY = GifImagePlugin.LoadingStrategy.RGB_AFTER_FIRST
    PngImagePlugin.MAX_TEXT_CHUNK = ImageFile.SAFEBLOCK
    PngImagePlugin.MAX_TEXT_MEMORY = 64 * PngImagePlugin.MAX_TEXT_CHUNK


def decode_image(
    body: bytes, algorithm: Algorithm, max_pixels: int, grow: Grow = lambda _frames, _pixels: None
) -> Decoded | Refused:
    """Decode and hash an image, or return its problem."""
    try:
        # Pillow warns about damage that it tolerates, and about large images.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(BytesIO(body), formats=FORMATS) as image:
                frames = _check_frames(image, len(body), max_pixels, grow)
                return _hash(image, frames, body, algorithm)
    except (LimitError, Image.DecompressionBombError) as error:
        return _refused("media-too-large", error)
    except (CostlyError, MemoryError) as error:
        return _refused("costly-media", error)
    except UnidentifiedImageError as error:
        reason = f"the file of {len(body)} bytes is not {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        return Refused("damaged-media", repr(error)[:200], reason)
    except (InputTypeError, *DAMAGE) as error:
        return _refused("damaged-media", error)


def _refused(problem: str, error: BaseException) -> Refused:
    shown = str(error)[:200] if isinstance(error, (LimitError, CostlyError)) else None
    return Refused(problem, repr(error)[:200], shown)  # type: ignore[arg-type]  # (one of the literals)


def _check_frames(image: Image.Image, nbytes: int, max_pixels: int, grow: Grow) -> int:
    """Return the number of frames. Raise an error if they are too many or too large.

    All frames are visited before any is decoded, because a later frame of a GIF can enlarge the
    canvas for good. To visit a frame, Pillow may decode the previous frame.
    """
    count = pixels = 0
    while True:
        try:
            image.seek(count)
        except EOFError:
            return count
        count += 1
        pixels += _pixels(image, nbytes)
        if pixels > max_pixels:
            raise LimitError(
                f"the first {count} frames have {pixels} pixels; at most {max_pixels} are decoded"
            )
        if count > MAX_FRAMES:
            raise LimitError(f"the image has more than {MAX_FRAMES} frames")
        grow(count, pixels)


def _pixels(frame: Image.Image, nbytes: int) -> int:
    """Return how many pixels to decode for the frame: in a tiled TIFF, at least one tile."""
    pixels = frame.width * frame.height
    tiles = getattr(frame, "tile", ())
    if frame.format == "BMP" and tiles and tiles[0][0] == "bmp_rle":
        if pixels > _RLE_PIXELS_PER_BYTE * nbytes:
            raise CostlyError("the run-length encoded BMP claims more pixels than it can hold")
    elif frame.format == "TIFF":
        width, length = (_tag(frame, tag) for tag in (_TILE_WIDTH, _TILE_LENGTH))
        pixels = max(pixels, width * length)
    return pixels


def _tag(frame: Image.Image, tag: int) -> int:
    value = frame.tag_v2.get(tag, 0)  # type: ignore[attr-defined]  # (of a TIFF)
    return value if isinstance(value, int) else 0


def _hash(image: Image.Image, frames: int, body: bytes, algorithm: Algorithm) -> Decoded:
    hasher = Hasher(algorithm)
    nbytes = length = 0
    descriptions = []
    for number in range(frames):
        image.seek(number)
        for band in _bands(image):
            nbytes += len(band)
            hasher.update(band)
        descriptions.append(describe(image))
        length += len(descriptions[-1])
        if length > MAX_EXTRA:
            raise CostlyError("the frames have too many palettes and transparency tables")
    orientation = _orientation(image, frames, body)
    return Decoded(frames, nbytes, hasher.digest(), b"".join(descriptions), orientation)


def _orientation(image: Image.Image, frames: int, body: bytes) -> int:
    if frames == 1:
        return read_orientation(image)
    # Open the image again: visiting the frames has changed its metadata.
    with Image.open(BytesIO(body), formats=FORMATS) as again:
        return read_orientation(again)


def _bands(frame: Image.Image) -> Iterator[bytes]:
    """Yield the pixels in bands of whole rows. Joined, the bands equal `tobytes`."""
    frame.load()
    width, height = frame.size
    if width * height <= _BAND_PIXELS:
        yield frame.tobytes()
        return
    rows = max(1, _BAND_PIXELS // width)
    for top in range(0, height, rows):
        yield frame.crop((0, top, width, min(height, top + rows))).tobytes()
