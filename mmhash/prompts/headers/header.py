"""The header of an image file, with the errors and limits that all readers share."""

from dataclasses import dataclass, field
from typing import Literal

from mmhash.engines.vllm.releases import applies_orientation
from mmhash.errors import InputValueError, LimitError

Format = Literal["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"]

# The most segments, chunks or blocks in a header. Libpng writes IDAT chunks of 8 KiB, so a PNG of
# 512 MiB has 65536 chunks.
MAX_STEPS = 1 << 16

# The models for which SGLang applies the orientation.
_SGLANG_TURNS = frozenset({"glm4v", "glm4v_moe", "glm_ocr"})


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


def engine_size(
    header: ImageHeader, engine: str, version: str, *, model_type: str = ""
) -> tuple[int, int]:
    """Return the width and height that the processor of this engine receives.

    - vLLM applies the orientation from 0.24.0 on (`normalize_image`, when it loads bytes).
    - SGLang applies it for the GLM-4V models only (`smart_rgb_conversion`), and only to images that
      Pillow decodes. On CUDA, nvJPEG decodes a JPEG without it.
    - Pillow applies the orientation of a TIFF while loading it, so every engine gets it applied.
    """
    stored = (header.width, header.height)
    if stored == header.oriented or header.format == "TIFF":
        return header.oriented
    if engine == "vllm":
        return header.oriented if applies_orientation(version) else stored
    if engine == "sglang" and model_type not in _SGLANG_TURNS:
        return stored
    if engine == "sglang" and header.format != "JPEG":
        return header.oriented
    raise InputValueError(
        f"an image has EXIF orientation {header.orientation}: whether {engine} applies it depends"
        " on its device, so rotate the pixels and remove the orientation"
    )


def check_steps(steps: int) -> None:
    """Refuse a header with too many parts."""
    if steps > MAX_STEPS:
        raise LimitError(f"the image's header has more than {MAX_STEPS} parts")


def unreadable(problem: str) -> ImageHeaderError:
    """Return the error for a header that cannot be read."""
    return ImageHeaderError(f"the image's header cannot be read: {problem}")
