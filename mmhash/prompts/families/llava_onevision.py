"""LLaVA-OneVision: like LLaVA-NeXT, but a large image is reduced to nine tiles."""

import math
from typing import ClassVar

from mmhash.prompts.families.config_values import read_choice, require_equal
from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.llava_next import LlavaNext
from mmhash.prompts.files import ModelFiles

# vLLM hard-codes this number; transformers reads it from vision_aspect_ratio.
MAX_TILES = 9


class LlavaOnevision(LlavaNext):
    """LLaVA-OneVision: images."""

    model_types: ClassVar[frozenset[str]] = frozenset({"llava_onevision"})
    image_token_index: ClassVar[int] = 151646
    strategy: ClassVar[str] = "full"

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        for settings in (files.config, files.processor):
            ratio = f"anyres_max_{MAX_TILES}"
            read_choice(settings, "vision_aspect_ratio", ratio, (ratio,))
        require_equal(files.processor, "num_image_tokens", self.tower.side**2)

    def count_tokens(self, size: MediaSize) -> int:
        """Return the number of tokens of the whole image, its reduced tiles and their rows."""
        rows, columns = self.unpad(size)
        ratio = math.sqrt(rows * columns / (MAX_TILES * self.tower.side**2))
        if ratio > 1.1:
            rows, columns = int(rows // ratio), int(columns // ratio)
        return self.tower.tokens + rows * columns + rows
