"""Vision towers of the LLaVA families: how many tokens a square image takes."""

from typing import NamedTuple

from mmhash.prompts.families.config_values import read_choice, read_count
from mmhash.prompts.files import Section, UnknownModelError

# Defaults for image size, patch size and class tokens, if the tower's config lacks them.
_DEFAULTS = {"clip_vision_model": (224, 32, 1), "siglip_vision_model": (224, 16, 0)}


class Tower(NamedTuple):
    """The sizes of a vision tower."""

    image_size: int
    side: int
    """The number of patches along a side of the image."""
    tokens: int
    """The number of tokens that the model takes from the tower."""


def read_tower(config: Section, strategy: str) -> Tower:
    """Read `vision_config`. `strategy` is the default feature selection."""
    vision = config.section("vision_config")
    kind = vision.get("model_type", str)
    if kind not in _DEFAULTS:
        raise UnknownModelError(f"model_type in {vision.where} is one of {', '.join(_DEFAULTS)}")
    size, patch, classes = _DEFAULTS[kind]
    size, patch = read_count(vision, "image_size", size), read_count(vision, "patch_size", patch)
    if size < patch or (classes and size % patch):
        raise UnknownModelError(f"image_size in {vision.where} must be a multiple of patch_size")
    name = "vision_feature_select_strategy"
    dropped = read_choice(config, name, strategy, ("default", "full")) == "default"
    side = size // patch
    return Tower(size, side, side * side + classes - dropped)
