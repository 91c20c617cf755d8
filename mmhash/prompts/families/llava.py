"""LLaVA 1.5, LLaVA-NeXT and LLaVA-OneVision: images by the tokens of a vision tower."""

import math
from typing import ClassVar

import msgspec

from mmhash.prompts.families.config_values import (
    check_token,
    read_choice,
    read_count,
    read_token,
    require_equal,
)
from mmhash.prompts.families.family import Expansion, ImageFamily, MediaSize, Placeholder
from mmhash.prompts.files import ModelFiles, Section, UnknownModelError

# The image size, patch size and class tokens of a tower whose config does not say them.
_TOWERS = {"clip_vision_model": (224, 32, 1), "siglip_vision_model": (224, 16, 0)}

# vLLM hard-codes this number; transformers reads it from vision_aspect_ratio.
_ONEVISION_TILES = 9


class Llava(ImageFamily):
    """LLaVA 1.5 and similar models, with CLIP or SigLIP: images are cropped to the tower's size."""

    model_types: ClassVar[frozenset[str]] = frozenset({"llava"})
    # SGLang counts an image's tokens by grids of its own, and ignores further images. Its generic
    # backend, which serves LLaVA-NeXT and LLaVA-OneVision, has no prefix cache.
    engines: ClassVar[frozenset[str]] = frozenset({"vllm"})
    image_token_index: ClassVar[int] = 32000
    strategy: ClassVar[str] = "default"

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self._read_tower(files.config)
        name = "vision_feature_select_strategy"
        require_equal(files.processor, name, files.config.get(name, str, self.strategy))
        default = files.processor.get("image_token", str, "<image>")
        image_token = read_token(files, "image_token", default)
        self.image = Placeholder(image_token, image_token)
        self.token = check_token(files, image_token, self.image_token_index)

    def _read_tower(self, config: Section) -> None:
        """Read the size of the tower's image, its patches along a side, and its tokens."""
        vision = config.section("vision_config")
        kind = read_choice(vision, "model_type", "", _TOWERS)
        size, patch, classes = _TOWERS[kind]
        size = read_count(vision, "image_size", size)
        patch = read_count(vision, "patch_size", patch)
        if size < patch or (classes and size % patch):
            raise UnknownModelError(
                f"image_size in {vision.where} must be a multiple of patch_size"
            )
        name = "vision_feature_select_strategy"
        drops_one = read_choice(config, name, self.strategy, ("default", "full")) == "default"
        self.tile, self.side = size, size // patch
        self.tower_tokens = self.side**2 + classes - drops_one

    @classmethod
    def takes(cls, config: Section) -> bool:
        """Return True if a model belongs to the family. A model with Pixtral's tower does not."""
        tower = config.section("vision_config").values.get("model_type")
        return super().takes(config) and tower != "pixtral"

    def expand_image(self, size: MediaSize, given: Section) -> Expansion:
        """Return the tokens of an image. No option changes their number."""
        del given
        return Expansion([self.token] * self.count_tokens(size))

    def count_tokens(self, size: MediaSize) -> int:
        """Return the number of tokens of an image."""
        del size
        return self.tower_tokens


class LlavaNext(Llava):
    """LLaVA-NeXT: the whole image, then its tiles without padding, with a token after each row."""

    model_types: ClassVar[frozenset[str]] = frozenset({"llava_next"})

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        name = "image_grid_pinpoints"
        try:
            pinpoints = msgspec.convert(files.config.values.get(name), list[tuple[int, int]])
        except msgspec.ValidationError as error:
            raise UnknownModelError(f"{name} in {files.config.where}: {error}") from None
        if not pinpoints or min(map(min, pinpoints)) < self.tile:
            raise UnknownModelError(f"{name} in {files.config.where} must be at least {self.tile}")
        require_equal(files.image_processor, name, files.config.values[name])
        self.pinpoints = pinpoints

    def count_tokens(self, size: MediaSize) -> int:
        """Return the number of tokens of the whole image, its tiles and the ends of their rows."""
        rows, columns = self.unpad(size)
        return self.tower_tokens + rows * columns + rows

    def unpad(self, size: MediaSize) -> tuple[int, int]:
        """Return the rows and columns of patches of all tiles, without padding."""
        height, width = find_resolution(size, self.pinpoints)
        rows = self.side * (height // self.tile)
        columns = self.side * (width // self.tile)
        if size.width / size.height > columns / rows:
            kept = int(round(size.height * (columns / size.width), 7))
            rows -= (rows - kept) // 2 * 2
        else:
            kept = int(round(size.width * (rows / size.height), 7))
            columns -= (columns - kept) // 2 * 2
        return rows, columns


class LlavaOnevision(LlavaNext):
    """LLaVA-OneVision: like LLaVA-NeXT, but a large image is reduced to nine tiles."""

    model_types: ClassVar[frozenset[str]] = frozenset({"llava_onevision"})
    image_token_index: ClassVar[int] = 151646
    strategy: ClassVar[str] = "full"

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        for settings in (files.config, files.processor):
            ratio = f"anyres_max_{_ONEVISION_TILES}"
            read_choice(settings, "vision_aspect_ratio", ratio, (ratio,))
        require_equal(files.processor, "num_image_tokens", self.side**2)

    def unpad(self, size: MediaSize) -> tuple[int, int]:
        """Return the rows and columns of patches of all tiles, reduced for a large image."""
        rows, columns = super().unpad(size)
        ratio = math.sqrt(rows * columns / (_ONEVISION_TILES * self.side**2))
        return (int(rows // ratio), int(columns // ratio)) if ratio > 1.1 else (rows, columns)


def find_resolution(size: MediaSize, resolutions: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the resolution that keeps most pixels. Of several, return the one that pads least."""

    def fit(resolution: tuple[int, int]) -> tuple[int, int]:
        height, width = resolution
        scale = min(width / size.width, height / size.height)
        pixels = int(size.width * scale) * int(size.height * scale)
        kept = min(pixels, size.width * size.height)
        return kept, kept - height * width

    return max(resolutions, key=fit)
