"""The header of an image file, with the errors and limits that all readers share."""

from dataclasses import dataclass, field
from typing import Literal

from mmhash.errors import InputValueError, LimitError

Format = Literal["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"]

# The most segments, chunks or blocks in a header. Libpng writes IDAT chunks of 8 KiB, so a PNG of
# 512 MiB has 65536 chunks.
MAX_STEPS = 1 << 16


class ImageHeaderError(InputValueError):
    """An image's header is damaged, or its format is not supported."""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """An image's format, its size as stored, and its EXIF orientation (1 to 8)."""

    format: Format
    width: int
    height: int
    orientation: int = 1
    is_rgb: bool | None = field(default=None, compare=False)
    """True if Pillow decodes the image to mode RGB, False if not, None if unknown."""
    is_keyed: bool = field(default=False, compare=False)
    """True if the image is RGB and one colour is transparent."""

    @property
    def oriented(self) -> tuple[int, int]:
        """Return the width and height with the orientation applied."""
        turned = self.orientation >= 5
        return (self.height, self.width) if turned else (self.width, self.height)


def check_steps(steps: int) -> None:
    """Refuse a header with too many parts."""
    if steps > MAX_STEPS:
        raise LimitError(f"the image's header has more than {MAX_STEPS} parts")


def unreadable(problem: str) -> ImageHeaderError:
    """Return the error for a header that cannot be read."""
    return ImageHeaderError(f"the image's header cannot be read: {problem}")
