"""InternVL in OpenGVLab's form, as vLLM serves it: the settings are in config.json."""

from collections.abc import Mapping
from typing import Any, ClassVar

from mmhash.prompts.families.config_values import read_count
from mmhash.prompts.families.family import Expansion, Family, MediaSize, Modality, Placeholder
from mmhash.prompts.families.layout import lay_out
from mmhash.prompts.families.processor_options import read_flat_options
from mmhash.prompts.families.tiles import choose_grid, list_grids_in_set_order
from mmhash.prompts.files import ModelFiles, Section, UnknownModelError

MAX_TILES = 64
OPTIONS = frozenset(
    {"min_dynamic_patch", "max_dynamic_patch", "dynamic_image_size", "use_thumbnail"}
)
_START, _CONTEXT, _END = "<img>", "<IMG_CONTEXT>", "</img>"


class InternVLChat(Family):
    """InternVL 1.5 to 3.5 with `model_type` internvl_chat: images."""

    model_types: ClassVar[frozenset[str]] = frozenset({"internvl_chat"})
    # SGLang tiles images by its own rules, and reads none of these settings.
    engines: ClassVar[frozenset[str]] = frozenset({"vllm"})

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        vision = files.config.section("vision_config")
        self.image_size = read_count(vision, "image_size")
        side = self.image_size // read_count(vision, "patch_size")
        ratio = files.config.get("downsample_ratio", float)
        if not (side and 1 / side <= ratio <= 1):
            raise UnknownModelError(
                f"downsample_ratio in {files.config.where} must be above 0 and at most 1"
            )
        self.run = int(side**2 * ratio**2)
        self.min_tiles = read_count(files.config, "min_dynamic_patch", most=MAX_TILES)
        self.max_tiles = read_count(files.config, "max_dynamic_patch", most=MAX_TILES)
        self.is_dynamic = files.config.get("dynamic_image_size", bool)
        self.has_thumbnail = files.config.get("use_thumbnail", bool)
        self.token = files.token_id(_CONTEXT)

    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholder of an image, which is several tokens."""
        return {"image": Placeholder("<image>", "<image>")}

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return the tokens of all tiles between two marks."""
        del modality
        tiles = self.count_tiles(size, read_flat_options(options, OPTIONS))
        return lay_out(self.files, f"{_START}{_CONTEXT}{_END}", self.token, self.run * tiles)

    def count_tiles(self, size: MediaSize, given: Section) -> int:
        """Return the number of tiles. If there are several, the whole image counts as one more."""
        least = read_count(given, "min_dynamic_patch", self.min_tiles, MAX_TILES)
        most = read_count(given, "max_dynamic_patch", self.max_tiles, MAX_TILES)
        if not given.get("dynamic_image_size", bool, self.is_dynamic):
            least = most = 1
        columns, rows = choose_grid(size, list_grids_in_set_order(least, most), self.image_size**2)
        tiles = columns * rows
        if tiles != 1 and given.get("use_thumbnail", bool, self.has_thumbnail):
            tiles += 1
        return tiles
