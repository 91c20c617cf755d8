"""LLaVA 1.5: images are cropped to the vision tower's size, so all have the same tokens."""

from collections.abc import Mapping
from typing import Any, ClassVar

from mmhash.prompts.families.config_values import check_token, read_token, require_equal
from mmhash.prompts.families.family import Expansion, Family, MediaSize, Modality, Placeholder
from mmhash.prompts.families.processor_options import read_flat_options
from mmhash.prompts.families.towers import read_tower
from mmhash.prompts.files import ModelFiles, Section


class Llava(Family):
    """LLaVA 1.5 and similar models, with CLIP or SigLIP."""

    model_types: ClassVar[frozenset[str]] = frozenset({"llava"})
    # SGLang counts an image's tokens by grids of its own, and ignores further images. It serves
    # LLaVA-NeXT and LLaVA-OneVision with its generic backend, which has no prefix cache.
    engines: ClassVar[frozenset[str]] = frozenset({"vllm"})
    image_token_index: ClassVar[int] = 32000
    strategy: ClassVar[str] = "default"

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.tower = read_tower(files.config, self.strategy)
        name = "vision_feature_select_strategy"
        require_equal(files.processor, name, files.config.get(name, str, self.strategy))
        default = files.processor.get("image_token", str, "<image>")
        self.image_token = read_token(files, "image_token", default)
        self.token = check_token(files, self.image_token, self.image_token_index)

    @classmethod
    def takes(cls, config: Section) -> bool:
        """Return True if a model belongs to the family. A model with Pixtral's tower does not."""
        tower = config.section("vision_config").values.get("model_type")
        return super().takes(config) and tower != "pixtral"

    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholder of an image."""
        return {"image": Placeholder(self.image_token, self.image_token)}

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return the tokens of an image. No option changes their number."""
        del modality
        read_flat_options(options, ())
        return Expansion([self.token] * self.count_tokens(size))

    def count_tokens(self, size: MediaSize) -> int:
        """Return the number of tokens of an image."""
        del size
        return self.tower.tokens
