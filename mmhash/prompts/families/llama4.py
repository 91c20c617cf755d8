"""Llama 4: tiles with separators on the canvas that fits an image best, then the whole image."""

from functools import lru_cache
from typing import ClassVar

import numpy as np

from mmhash.prompts.families.config_values import read_count, require_equal
from mmhash.prompts.families.family import Expansion, ImageFamily, MediaSize, Placeholder
from mmhash.prompts.families.layout import lay_out
from mmhash.prompts.files import ModelFiles, Section, UnknownModelError

MAX_TILES = 256
_IMAGE, _PATCH = "<|image|>", "<|patch|>"
_START, _END = "<|image_start|>", "<|image_end|>"
_NEXT, _NEXT_ROW = "<|tile_x_separator|>", "<|tile_y_separator|>"


class Llama4(ImageFamily):
    """Llama 4."""

    model_types: ClassVar[frozenset[str]] = frozenset({"llama4"})
    image = Placeholder(_IMAGE, _IMAGE)

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        vision, image = files.config.section("vision_config"), files.image_processor
        self.tile = read_count(vision, "image_size", 448)
        patch = read_count(vision, "patch_size", 14)
        ratio = vision.get("pixel_shuffle_ratio", float, 0.5)
        if self.tile % patch or not 0.01 <= ratio <= 1:
            raise UnknownModelError(
                f"image_size in {vision.where} must be a multiple of patch_size"
            )
        self.run = (self.tile // patch) ** 2 // round(1 / ratio**2)
        require_equal(image, "size", {"height": self.tile, "width": self.tile})
        require_equal(files.processor, "patch_size", patch)
        require_equal(files.processor, "pixel_shuffle_ratio", ratio)
        self.most = read_count(image, "max_patches", 16, MAX_TILES)
        self.is_maximal = image.get("resize_to_max_canvas", bool, default=False)
        self.token = files.token_id(_PATCH)

    def expand_image(self, size: MediaSize, given: Section) -> Expansion:
        """Return the tokens of all tiles and of the whole image. vLLM reads no options."""
        del given
        rows, columns = choose_canvas(size, self.most, self.tile, self.is_maximal)
        tiles = ""
        if rows * columns > 1:
            tiles = (_NEXT.join([_PATCH] * columns) + _NEXT_ROW) * rows
        text = f"{_START}{tiles}{_IMAGE}{_PATCH}{_END}"
        return lay_out(self.files, text, self.token, self.run)

    def splits_items(self) -> bool:
        """Return True for SGLang, where each tile is an item.

        SGLang ignores a caller's hashes, because there are fewer hashes than tiles.
        """
        return self.files.engine == "sglang"


def choose_canvas(size: MediaSize, most: int, tile: int, is_maximal: bool) -> tuple[int, int]:
    """Return the rows and columns of the canvas that fits an image best.

    If a canvas can hold the image, choose the least enlargement, or the greatest with `is_maximal`.
    Otherwise choose the least reduction. Ties go to the smallest canvas, then to the first. Scales
    are compared as 32-bit floats, as torch computes them.
    """
    canvases = list_canvases(most)
    heights, widths = (canvases * tile).astype(np.float32).T
    scales = np.minimum(heights / np.float32(size.height), widths / np.float32(size.width))
    larger = scales[scales >= 1]
    scale = larger.min() if larger.size and not is_maximal else scales.max()
    chosen = canvases[scales == scale]
    rows, columns = chosen[chosen.prod(axis=1).argmin()].tolist()
    return rows, columns


@lru_cache(maxsize=16)
def list_canvases(most: int) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """Return the canvases (rows, columns) of up to `most` tiles, ordered by shape, larger first."""
    shapes: dict[float, list[tuple[int, int]]] = {}
    for tiles in range(most, 0, -1):
        for rows in range(1, tiles + 1):
            if tiles % rows == 0:
                columns = tiles // rows
                shapes.setdefault(rows / columns, []).append((rows, columns))
    return np.array([canvas for same in shapes.values() for canvas in same], dtype=np.int64)
