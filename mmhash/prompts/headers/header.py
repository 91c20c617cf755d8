"""The header of an image file, and the errors and limits of its readers."""

from dataclasses import dataclass, field
from typing import Literal

from mmhash.errors import InputValueError, LimitError

Format = Literal["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"]

# The most segments, chunks, boxes or blocks of one header. Libpng writes IDAT chunks of 8 KiB: a
# PNG of 512 MiB has 65536.
MAX_STEPS = 1 << 16


class ImageHeaderError(InputValueError):
    """The header of an image is damaged, or not one of a format that is read here."""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The format and size of an image, as stored, and its orientation as EXIF counts (1 to 8)."""

    format: Format
    width: int
    height: int
    orientation: int = 1
    is_rgb: bool | None = field(default=None, compare=False)
    """True if Pillow decodes it in mode RGB, False if in another; None if that is not known."""
    is_keyed: bool = field(default=False, compare=False)
    """True if one colour of an image in mode RGB is transparent."""

    @property
    def oriented(self) -> tuple[int, int]:
        """Return width and height after the orientation is applied."""
        turned = self.orientation >= 5
        return (self.height, self.width) if turned else (self.width, self.height)


def check_steps(steps: int) -> None:
    """Refuse a header of too many parts."""
    if steps > MAX_STEPS:
        raise LimitError(f"the image's header has more than {MAX_STEPS} parts")


def unreadable(problem: str) -> ImageHeaderError:
    """Return the error of a header that cannot be read."""
    return ImageHeaderError(f"the image's header cannot be read: {problem}")
