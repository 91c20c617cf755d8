"""LLaVA-OneVision: as LLaVA-NeXT, with the tiles of a large image reduced to nine."""

import math
from typing import ClassVar

from mmhash.prompts.families.config_values import read_choice, require_equal
from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.llava_next import LlavaNext
from mmhash.prompts.files import ModelFiles

# vLLM has this number in its code, and transformers reads it from vision_aspect_ratio.
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
        """Return the tokens of the whole image, of its reduced tiles and of their rows."""
        rows, columns = self.unpad(size)
        ratio = math.sqrt(rows * columns / (MAX_TILES * self.tower.side**2))
        if ratio > 1.1:
            rows, columns = int(rows // ratio), int(columns // ratio)
        return self.tower.tokens + rows * columns + rows
