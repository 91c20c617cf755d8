"""Phi-4 multimodal: the whole image, then its tiles without padding, with a token per row."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from mmhash.errors import InputValueError
from mmhash.prompts.families.config_values import read_count, read_token
from mmhash.prompts.families.family import Expansion, Family, MediaSize, Modality, Placeholder
from mmhash.prompts.families.processor_options import read_flat_options
from mmhash.prompts.families.tiles import choose_grid, list_grids_in_set_order
from mmhash.prompts.files import ModelFiles, UnknownModelError

MAX_TILES = 64
# The processor refuses an image if a side would become shorter than this.
MIN_SIDE = 10
# The engines and the processor hard-code this size of the vision tower.
TILE, PATCH = 448, 14


class Phi4Multimodal(Family):
    """Phi-4 multimodal in transformers' form: images."""

    model_types: ClassVar[frozenset[str]] = frozenset({"phi4_multimodal"})
    # SGLang serves one form with its generic backend, which has no prefix cache, and the other form
    # with different placeholders.
    engines: ClassVar[frozenset[str]] = frozenset({"vllm"})

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        image = files.image_processor
        size = image.section("size")
        given = [read_count(size, "height", TILE), read_count(size, "width", TILE)]
        if [*given, read_count(image, "patch_size", PATCH)] != [TILE, TILE, PATCH]:
            raise UnknownModelError(
                f"size in {image.where} must be {TILE}, with patches of {PATCH}"
            )
        self.most = read_count(image, "dynamic_hd", 36, MAX_TILES)
        self.image_token = self.read_image_token()
        self.token = files.token_id(self.image_token)

    def read_image_token(self) -> str:
        """Return the token that an image is made of."""
        return read_token(self.files, "image_token")

    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholder of an image."""
        return {"image": Placeholder(self.image_token, self.image_token)}

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return the tokens of the whole image, its tiles, their rows and a mark."""
        del modality
        read_flat_options(options, ())
        rows, columns = count_features(size, self.most)
        side = TILE // PATCH // 2
        count = side * side + side + 1 + rows * columns + rows
        return Expansion([self.token] * count)


class Phi4MM(Phi4Multimodal):
    """Phi-4 multimodal in Microsoft's form, as vLLM serves it: images."""

    model_types: ClassVar[frozenset[str]] = frozenset({"phi4mm"})

    def read_image_token(self) -> str:
        """Return the token that an image is made of."""
        return "<|endoftext10|>"

    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholder of an image, which contains the image's number."""
        return {"image": Placeholder("<|image_{i}|>", "<|image_{i}|>")}


def count_features(size: MediaSize, most: int) -> tuple[int, int]:
    """Return the rows and columns of patch pairs of all tiles, without padding."""
    columns, rows = math.ceil(size.width / TILE), math.ceil(size.height / TILE)
    if columns * rows > most:
        columns, rows = choose_grid(size, list_grids_in_set_order(1, most), TILE * TILE)
    width, height = columns * TILE, rows * TILE
    wide, high = width / size.width, height / size.height
    kept = (width, int(size.height * wide)) if wide < high else (int(size.width * high), height)
    if min(kept) < MIN_SIDE:
        raise InputValueError(f"the model takes no image of {size.width} x {size.height} pixels")
    columns = math.ceil((width // PATCH - (width - kept[0]) // PATCH) / 2)
    rows = math.ceil((height // PATCH - (height - kept[1]) // PATCH) / 2)
    return rows, columns
