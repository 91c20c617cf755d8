"""InternVL: an image is a grid of square tiles, then the whole image."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import Family, Placeholder
from mmhash.prompts.families.processor_options import read_options
from mmhash.prompts.files import ModelFiles
from mmhash.prompts.items import Expansion, MediaSize, check_count
from mmhash.prompts.section import Section, UnknownModelError
from mmhash.requests import Modality

MAX_TILES = 64

_MAX_SIDE = 1 << 16
_OPTIONS = ("min_dynamic_patch", "max_dynamic_patch", "dynamic_image_size", "use_thumbnail")


class InternVLChat(Family):
    """InternVL 1.5 to 3.5 in OpenGVLab's form, as vLLM serves it: config.json has its settings."""

    def __init__(self, files: ModelFiles, engine: str = "", release: str = "") -> None:
        super().__init__(files, engine, release)
        if engine == "sglang":  # SGLang reads none of these settings
            raise UnknownModelError("SGLang tiles images of internvl_chat by rules of its own")
        vision = files.config.section("vision_config")
        self.image_size = _read_count(vision, "image_size", _MAX_SIDE)
        side = self.image_size // _read_count(vision, "patch_size", _MAX_SIDE)
        ratio = files.config.get("downsample_ratio", float)
        if not (side and 1 / side <= ratio <= 1):
            raise UnknownModelError(
                f"downsample_ratio in {files.config.where} must be above 0 and at most 1"
            )
        self.run = int(side**2 * ratio**2)
        self.min_tiles = _read_count(files.config, "min_dynamic_patch", MAX_TILES)
        self.max_tiles = _read_count(files.config, "max_dynamic_patch", MAX_TILES)
        self.is_dynamic = files.config.get("dynamic_image_size", bool)
        self.has_thumbnail = files.config.get("use_thumbnail", bool)
        token_id = files.encoder.token_id
        self.start, self.token, self.end = map(token_id, ("<img>", "<IMG_CONTEXT>", "</img>"))
        self.placeholders = {"image": Placeholder("<image>", "<image>")}

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return the tokens of all tiles between two marks."""
        del modality
        if "images_kwargs" in options:
            raise InputValueError("mmhash does not know images_kwargs for this model")
        given = read_options(options, "images_kwargs", _OPTIONS)
        count = self.run * self.count_tiles(size, given)
        check_count(count)
        return Expansion([self.start, *[self.token] * count, self.end], [(1, count + 1)])

    def count_tiles(self, size: MediaSize, given: Section) -> int:
        """Return the number of tiles. If there are several, the whole image counts as one more."""
        least = _read_count(given, "min_dynamic_patch", MAX_TILES, self.min_tiles)
        most = _read_count(given, "max_dynamic_patch", MAX_TILES, self.max_tiles)
        if not given.get("dynamic_image_size", bool, self.is_dynamic):
            least = most = 1
        columns, rows = choose_grid(size, list_grids(least, most), self.image_size**2)
        tiles = columns * rows
        if tiles != 1 and given.get("use_thumbnail", bool, self.has_thumbnail):
            tiles += 1
        return tiles


def _read_count(settings: Section, name: str, most: int, default: int | None = None) -> int:
    """Return a setting from 1 to `most`. Raise UnknownModelError for any other value."""
    value = settings.get(name, int, default)
    if not 1 <= value <= most:
        raise UnknownModelError(f"{name} in {settings.where} must be from 1 to {most}")
    return value


@lru_cache(maxsize=64)
def list_grids(least: int, most: int) -> list[tuple[int, int]]:
    """Return the grids (columns, rows) of `least` to `most` tiles, ordered by tiles as in vLLM.

    Grids with equally many tiles keep the order of Python's set, which decides between them later.
    So the grids are added in the same order as in vLLM, most of them repeatedly.
    """
    grids = {
        (columns, rows)
        for side in range(least, most + 1)
        for columns in range(1, side + 1)
        for rows in range(1, min(side, most // columns) + 1)
        if columns * rows >= least
    }
    return sorted(grids, key=lambda grid: grid[0] * grid[1])


def choose_grid(
    size: MediaSize, grids: Sequence[tuple[int, int]], tile_pixels: int
) -> tuple[int, int]:
    """Return the grid with the nearest aspect ratio; among ties, the last that is not too large."""
    ratio = size.width / size.height
    area = size.width * size.height
    best, best_distance = (1, 1), float("inf")
    for grid in grids:
        distance = abs(ratio - grid[0] / grid[1])
        is_tie = distance == best_distance and area > 0.5 * tile_pixels * grid[0] * grid[1]
        if distance < best_distance or is_tie:
            best, best_distance = grid, distance
    return best
