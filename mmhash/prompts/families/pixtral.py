"""Pixtral and Mistral 3: an image is rows of patches, with a token at the end of each row."""

import math
from typing import ClassVar

from mmhash.errors import InputValueError
from mmhash.prompts.families.config_values import check_token, read_count, require_equal
from mmhash.prompts.families.family import (
    MAX_TOKENS,
    Expansion,
    ImageFamily,
    MediaSize,
    Placeholder,
)
from mmhash.prompts.families.layout import mark_embeds
from mmhash.prompts.files import ModelFiles, Section, UnknownModelError


class Pixtral(ImageFamily):
    """Pixtral in transformers' form: `model_type` llava with Pixtral's vision tower."""

    model_types: ClassVar[frozenset[str]] = frozenset({"llava"})
    image_token_index: ClassVar[int] = 32000

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        vision = files.config.section("vision_config")
        patch, merged = read_count(vision, "patch_size", 16), self.read_merge(files.config)
        self.patch = patch * merged
        for name, value, default in (
            ("patch_size", patch, 16),
            ("spatial_merge_size", merged, 1),
        ):
            if read_count(files.processor, name, default) != value:
                raise UnknownModelError(
                    f"{name} in {files.processor.where} must equal that in config.json"
                )
        self.longest = read_count(files.image_processor.section("size"), "longest_edge")
        self.check_longest(read_count(vision, "image_size", 1024))
        image_token = files.processor.get("image_token", str, "[IMG]")
        self.image = Placeholder(
            image_token, ""
        )  # an engine writes none that a template leaves out
        self.token = check_token(files, image_token, self.image_token_index)
        self.row_end = files.token_id(files.processor.get("image_break_token", str, "[IMG_BREAK]"))
        self.end = files.token_id(files.processor.get("image_end_token", str, "[IMG_END]"))

    @classmethod
    def takes(cls, config: Section) -> bool:
        """Return True if the model has this family's type and Pixtral's vision tower."""
        tower = config.section("vision_config").values.get("model_type")
        return super().takes(config) and tower == "pixtral"

    def read_merge(self, config: Section) -> int:
        """Return the number of patches along the side of a token's square."""
        del config
        return 1

    def check_longest(self, image_size: int) -> None:
        """Refuse a longest side that differs from the tower's `image_size`, which vLLM uses."""
        require_equal(self.files.image_processor.section("size"), "longest_edge", image_size)

    def expand_image(self, size: MediaSize, given: Section) -> Expansion:
        """Return the tokens of all rows."""
        longest = read_count(given.section("size"), "longest_edge", self.longest)
        rows, columns = count_patches(size, longest, self.patch)
        if rows * (columns + 1) > MAX_TOKENS:
            raise UnknownModelError(f"an item of this model has more than {MAX_TOKENS} tokens")
        ids = ([self.token] * columns + [self.row_end]) * rows
        ids[-1] = self.end
        return mark_embeds(ids, self.token)._replace(grid=(rows, columns))


class Mistral3(Pixtral):
    """Mistral Small 3.1 and newer, where a token stands for a square of patches."""

    model_types: ClassVar[frozenset[str]] = frozenset({"mistral3"})
    image_token_index: ClassVar[int] = 10
    options: ClassVar[frozenset[str]] = frozenset({"size"})

    def read_merge(self, config: Section) -> int:
        """Return the number of patches along the side of a token's square."""
        return read_count(config, "spatial_merge_size", 2)

    def check_longest(self, image_size: int) -> None:
        """Accept any longest side: vLLM reads it from the image processor."""


def count_patches(size: MediaSize, longest: int, patch: int) -> tuple[int, int]:
    """Return the rows and columns of patches after reducing an image to a longest side."""
    width, height = size.width, size.height
    ratio = max(height / longest, width / longest)
    if ratio > 1:
        height, width = math.floor(height / ratio), math.floor(width / ratio)
    if min(height, width) < 1:
        raise InputValueError(f"the model takes no image of {size.width} x {size.height} pixels")
    return (height - 1) // patch + 1, (width - 1) // patch + 1
