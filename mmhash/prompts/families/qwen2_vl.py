"""Qwen2-VL: an image is resized to whole patches, and a token stands for each square of patches."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import Expansion, Family, MediaSize, Modality, Placeholder
from mmhash.prompts.files import ModelFiles, Section, UnknownModelError

# The longest side of an image divided by its shortest, from which the processor refuses it.
MAX_RATIO = 200


class Qwen2VL(Family):
    """Qwen2-VL: images."""

    model_types: ClassVar[frozenset[str]] = frozenset({"qwen2_vl"})

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        image = files.image_processor
        self.patch_size = image.get("patch_size", int, 14)
        self.merge_size = image.get("merge_size", int, 2)
        self.min_pixels, self.max_pixels = read_pixels(image, 56 * 56, 28 * 28 * 1280)
        if not image.get("do_resize", bool, default=True):
            raise UnknownModelError(f"do_resize in {image.where} is true")
        self.image_token = files.token_id("<|image_pad|>")

    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholder of an image."""
        text = "<|vision_start|><|image_pad|><|vision_end|>"
        return {"image": Placeholder("<|image_pad|>", text)}

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return a token for each square of patches."""
        del modality
        low, high = read_pixels(Section("options", dict(options)), self.min_pixels, self.max_pixels)
        height, width = smart_resize(
            size.height, size.width, self.patch_size * self.merge_size, low, high
        )
        grid = (1, height // self.patch_size, width // self.patch_size)
        count = grid[1] * grid[2] // self.merge_size**2
        return Expansion([self.image_token] * count, grid=grid)


def read_pixels(settings: Section, low: int, high: int) -> tuple[int, int]:
    """Return the least and the largest number of pixels: of `size`, or of the older names."""
    size = settings.section("size")
    low, high = size.get("shortest_edge", int, low), size.get("longest_edge", int, high)
    return settings.get("min_pixels", int, low), settings.get("max_pixels", int, high)


def smart_resize(height: int, width: int, factor: int, low: int, high: int) -> tuple[int, int]:
    """Return the height and width to which an image is resized: multiples of `factor`."""
    if min(height, width) < 1 or max(height, width) / min(height, width) > MAX_RATIO:
        raise InputValueError(f"the model takes no image of {width} x {height} pixels")
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    if rows * columns > high:
        scale = math.sqrt(height * width / high)
        rows = max(factor, math.floor(height / scale / factor) * factor)
        columns = max(factor, math.floor(width / scale / factor) * factor)
    elif rows * columns < low:
        scale = math.sqrt(low / (height * width))
        rows = math.ceil(height * scale / factor) * factor
        columns = math.ceil(width * scale / factor) * factor
    return rows, columns
