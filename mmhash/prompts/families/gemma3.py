"""Gemma 3: an image is 256 tokens between newlines. With pan and scan, so is each of its crops."""

import math
from typing import ClassVar

from mmhash.prompts.families.config_values import read_count, read_token
from mmhash.prompts.families.family import (
    Expansion,
    ImageFamily,
    MediaSize,
    PlacedItem,
    Placeholder,
)
from mmhash.prompts.families.layout import lay_out
from mmhash.prompts.families.newlines import Newlines
from mmhash.prompts.files import ModelFiles, Section

MAX_CROPS = 64


class Gemma3(ImageFamily):
    """Gemma 3: images."""

    model_types: ClassVar[frozenset[str]] = frozenset({"gemma3"})
    options: ClassVar[frozenset[str]] = frozenset({
        "do_pan_and_scan", "pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops",
        "pan_and_scan_min_ratio_to_activate",
    })  # fmt: skip

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.run = read_count(files.processor, "image_seq_length", 256)
        start = read_token(files, "boi_token")
        self.image = Placeholder(start, start)
        soft = read_token(files, "image_token")
        self.token = files.token_id(soft)
        self.text = f"\n\n{start}{soft}{read_token(files, 'eoi_token')}\n\n"
        self.newlines = Newlines(files)

    def expand_image(self, size: MediaSize, given: Section) -> Expansion:
        """Return the tokens of an image and of its crops."""
        crops = count_crops(size, given)
        text = self.text
        if crops:
            text = (
                f"Here is the original image {text} and here are some crops to help you "
                f"see better {' '.join([text] * crops)}"
            )
        return lay_out(self.files, text, self.token, self.run)

    def merge(
        self, token_ids: list[int], items: list[PlacedItem]
    ) -> tuple[list[int], list[PlacedItem]]:
        """Return the prompt with the newlines around images merged into adjacent newlines."""
        return self.newlines.merge(token_ids, items)


def count_crops(size: MediaSize, given: Section) -> int:
    """Return the number of crops of an image.

    The processor's built-in defaults override the values in the image processor's file. Only
    options of the request change them.
    """
    if not given.get("do_pan_and_scan", bool, default=False):
        return 0
    least = read_count(given, "pan_and_scan_min_crop_size", 256)
    most = read_count(given, "pan_and_scan_max_num_crops", 4, MAX_CROPS)
    long, short = max(size.width, size.height), min(size.width, size.height)
    if long / short < given.get("pan_and_scan_min_ratio_to_activate", float, 1.2):
        return 0
    crops = min(most, max(2, min(long // least, math.floor(long / short + 0.5))))
    return 0 if min(math.ceil(long / crops), short) < least else crops
