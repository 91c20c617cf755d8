"""Idefics3 and SmolVLM: rows of square tiles, each with its position, then the whole image."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from mmhash.errors import InputValueError
from mmhash.prompts.families.config_values import check_token, read_count, read_token
from mmhash.prompts.families.family import Expansion, Family, MediaSize, Modality, Placeholder
from mmhash.prompts.families.layout import lay_out
from mmhash.prompts.families.processor_options import read_flat_options
from mmhash.prompts.files import ModelFiles, UnknownModelError

# The processor reduces larger images to this side.
MAX_SIDE = 4096
MAX_TILES = 1024
OPTIONS = frozenset({"do_image_splitting", "max_image_size", "size"})


class Idefics3(Family):
    """Idefics3."""

    model_types: ClassVar[frozenset[str]] = frozenset({"idefics3"})
    # SGLang serves this family with its generic backend, which has no prefix cache.
    engines: ClassVar[frozenset[str]] = frozenset({"vllm"})

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        image = files.image_processor
        self.longest = read_count(image.section("size"), "longest_edge")
        self.tile = read_count(image.section("max_image_size"), "longest_edge")
        self.splits = image.get("do_image_splitting", bool, default=True)
        if not image.get("do_resize", bool, default=True):
            raise UnknownModelError(f"do_resize in {image.where} must be true")
        self.run = read_count(files.processor, "image_seq_len", 169)
        self.image_token, self.fake, self.whole = self.read_marks()
        self.token = check_token(files, self.image_token, 128257)

    def read_marks(self) -> tuple[str, str, str]:
        """Return the tokens of a patch, around a tile and of the whole image."""
        return "<image>", "<fake_token_around_image>", "<global-img>"

    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholder of an image."""
        return {"image": Placeholder(self.image_token, self.image_token)}

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return the tokens of all tiles and of the whole image."""
        del modality
        given = read_flat_options(options, OPTIONS)
        rows = columns = 0
        if given.get("do_image_splitting", bool, self.splits):
            longest = read_count(given.section("size"), "longest_edge", self.longest)
            tile = read_count(given.section("max_image_size"), "longest_edge", self.tile)
            rows, columns = count_tiles(size, longest, tile)
        text = f"{self.fake}{self.whole}{self.image_token}{self.fake}"
        if rows:
            text = f"{self.write_tiles(rows, columns)}\n{text}"
        return lay_out(self.files, text, self.token, self.run)

    def write_tiles(self, rows: int, columns: int) -> str:
        """Return the text of all tiles, row by row."""
        return "".join(
            "".join(
                f"{self.fake}<row_{row}_col_{column}>{self.image_token}"
                for column in range(1, columns + 1)
            )
            + "\n"
            for row in range(1, rows + 1)
        )


class SmolVLM(Idefics3):
    """SmolVLM: images. The tokenizer names the tokens."""

    model_types: ClassVar[frozenset[str]] = frozenset({"smolvlm"})

    def read_marks(self) -> tuple[str, str, str]:
        """Return the tokens of a patch, around a tile and of the whole image."""
        return (
            read_token(self.files, "image_token", "<image>"),
            read_token(self.files, "fake_image_token", "<fake_token_around_image>"),
            read_token(self.files, "global_image_token", "<global-img>"),
        )


def count_tiles(size: MediaSize, longest: int, tile: int) -> tuple[int, int]:
    """Return the rows and columns of tiles, or 0 and 0 if the image is a single tile.

    vLLM counts tiles with a function of the processor, but the processor itself makes other tiles
    of some narrow images. vLLM cannot serve such an image, so the plan refuses it.
    """
    height, width = resize(size.height, size.width, longest)
    counted = math.ceil(height / tile), math.ceil(width / tile)
    made = math.ceil(height / tile), math.ceil(width / tile)
    if width >= height:
        made = math.ceil(int(made[1] * tile / (width / height)) / tile), made[1]
    else:
        made = made[0], math.ceil(int(made[0] * tile * (width / height)) / tile)
    if counted != made:
        raise InputValueError(
            f"vLLM counts {counted[0]} x {counted[1]} tiles in an image of {size.width} x "
            f"{size.height} pixels, and the processor makes {made[0]} x {made[1]}"
        )
    if counted[0] * counted[1] > MAX_TILES:
        raise UnknownModelError(f"an image of this model has more than {MAX_TILES} tiles")
    return (0, 0) if counted == (1, 1) else counted


def resize(height: int, width: int, longest: int) -> tuple[int, int]:
    """Return the height and width of an image after its longest side is resized to `longest`."""
    ratio = width / height
    if width >= height:
        width, height = longest, _make_even(int(longest / ratio))
    else:
        height, width = longest, _make_even(int(longest * ratio))
    height, width = max(height, 1), max(width, 1)
    ratio = width / height
    if width >= height and width > MAX_SIDE:
        width, height = MAX_SIDE, int(MAX_SIDE / ratio)
    elif height > MAX_SIDE:
        height, width = MAX_SIDE, int(MAX_SIDE * ratio)
    return max(height, 1), max(width, 1)


def _make_even(side: int) -> int:
    return side + side % 2
