"""InternVL in transformers' form: an image is a grid of square tiles, then the whole image."""

from collections.abc import Mapping
from typing import Any, ClassVar

from mmhash.prompts.families.config_values import check_token, read_count, read_token
from mmhash.prompts.families.family import Expansion, Family, MediaSize, Modality, Placeholder
from mmhash.prompts.families.layout import lay_out
from mmhash.prompts.families.processor_options import read_flat_options
from mmhash.prompts.families.tiles import choose_grid, list_grids
from mmhash.prompts.files import ModelFiles, UnknownModelError

MAX_TILES = 256
OPTIONS = frozenset({"crop_to_patches", "min_patches", "max_patches"})


class InternVL(Family):
    """InternVL 3 with `model_type` internvl: images."""

    model_types: ClassVar[frozenset[str]] = frozenset({"internvl"})
    # SGLang serves this family with its generic backend, which has no prefix cache.
    engines: ClassVar[frozenset[str]] = frozenset({"vllm"})

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        image = files.image_processor
        size = image.section("size")
        self.tile_pixels = read_count(size, "height") * read_count(size, "width")
        if not image.get("do_resize", bool, default=True):
            raise UnknownModelError(f"do_resize in {image.where} must be true")
        self.min_patches = read_count(image, "min_patches", 1, MAX_TILES)
        self.max_patches = read_count(image, "max_patches", 12, MAX_TILES)
        self.run = read_count(files.processor, "image_seq_length", 256)
        self.context = read_token(files, "context_image_token")
        self.start = read_token(files, "start_image_token")
        self.end = read_token(files, "end_image_token")
        self.token = check_token(files, self.context, 151667)

    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholder of an image, which is the token that tiles repeat."""
        return {"image": Placeholder(self.context, self.context)}

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return the tokens of all tiles between two marks.

        The processor's built-in `crop_to_patches=True` overrides the image processor's file. Only
        an option of the request changes it.
        """
        del modality
        given = read_flat_options(options, OPTIONS)
        tiles = 1
        if given.get("crop_to_patches", bool, default=True):
            least = read_count(given, "min_patches", self.min_patches, MAX_TILES)
            most = read_count(given, "max_patches", self.max_patches, MAX_TILES)
            columns, rows = choose_grid(size, list_grids(least, most), self.tile_pixels)
            tiles = columns * rows
        tiles += tiles != 1
        text = f"{self.start}{self.context}{self.end}"
        return lay_out(self.files, text, self.token, self.run * tiles)
