"""Phi-4 multimodal: the whole image, then its tiles without padding, with a token per row."""

import math
from typing import ClassVar

from mmhash.errors import InputValueError
from mmhash.prompts.families.config_values import read_count, read_token
from mmhash.prompts.families.family import Expansion, ImageFamily, MediaSize, Placeholder
from mmhash.prompts.families.tiles import choose_grid, list_grids
from mmhash.prompts.files import ModelFiles, Section, UnknownModelError

MAX_TILES = 64
# The processor refuses an image if a side would become shorter than this.
MIN_SIDE = 10
# The engines and the processor hard-code this size of the vision tower.
TILE, PATCH = 448, 14


class Phi4Multimodal(ImageFamily):
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
        self.token = self.read_marks()

    def read_marks(self) -> int:
        """Set the placeholder of an image, and return the token that an image is made of."""
        text = read_token(self.files, "image_token")
        self.image = Placeholder(text, text)
        return self.files.token_id(text)

    def expand_image(self, size: MediaSize, given: Section) -> Expansion:
        """Return the tokens of the whole image, its tiles, their rows and a mark."""
        del given
        rows, columns = count_features(size, self.most)
        side = TILE // PATCH // 2
        count = side * side + side + 1 + rows * columns + rows
        return Expansion([self.token] * count)


class Phi4MM(Phi4Multimodal):
    """Phi-4 multimodal in Microsoft's form, as vLLM serves it: images."""

    model_types: ClassVar[frozenset[str]] = frozenset({"phi4mm"})

    def read_marks(self) -> int:
        """Set the placeholder of an image, which contains its number, and return its token."""
        self.image = Placeholder("<|image_{i}|>", "<|image_{i}|>")
        return self.files.token_id("<|endoftext10|>")


def count_features(size: MediaSize, most: int) -> tuple[int, int]:
    """Return the rows and columns of patch pairs of all tiles, without padding."""
    columns, rows = math.ceil(size.width / TILE), math.ceil(size.height / TILE)
    if columns * rows > most:
        columns, rows = choose_grid(size, list_grids(1, most), TILE * TILE)
    width, height = columns * TILE, rows * TILE
    wide, high = width / size.width, height / size.height
    kept = (width, int(size.height * wide)) if wide < high else (int(size.width * high), height)
    if min(kept) < MIN_SIDE:
        raise InputValueError(f"the model takes no image of {size.width} x {size.height} pixels")
    columns = math.ceil((width // PATCH - (width - kept[0]) // PATCH) / 2)
    rows = math.ceil((height // PATCH - (height - kept[1]) // PATCH) / 2)
    return rows, columns
