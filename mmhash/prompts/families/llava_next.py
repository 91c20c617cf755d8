"""LLaVA-NeXT: the whole image, then its tiles without padding, with a token after each row."""

from typing import ClassVar

from mmhash.prompts.families.config_values import MAX_VALUE, require_equal
from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.llava import Llava
from mmhash.prompts.files import ModelFiles, Section, UnknownModelError

MAX_PINPOINTS = 1024


class LlavaNext(Llava):
    """LLaVA-NeXT (LLaVA 1.6)."""

    model_types: ClassVar[frozenset[str]] = frozenset({"llava_next"})

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.pinpoints = read_pinpoints(files.config, self.tower.image_size)
        require_equal(
            files.image_processor, "image_grid_pinpoints", [list(p) for p in self.pinpoints]
        )

    def count_tokens(self, size: MediaSize) -> int:
        """Return the number of tokens of the whole image, its tiles and the ends of their rows."""
        rows, columns = self.unpad(size)
        return self.tower.tokens + rows * columns + rows

    def unpad(self, size: MediaSize) -> tuple[int, int]:
        """Return the rows and columns of patches of all tiles, without padding."""
        height, width = find_resolution(size, self.pinpoints)
        rows = self.tower.side * (height // self.tower.image_size)
        columns = self.tower.side * (width // self.tower.image_size)
        if size.width / size.height > columns / rows:
            kept = int(round(size.height * (columns / size.width), 7))
            rows -= (rows - kept) // 2 * 2
        else:
            kept = int(round(size.width * (rows / size.height), 7))
            columns -= (columns - kept) // 2 * 2
        return rows, columns


def read_pinpoints(config: Section, least: int) -> list[tuple[int, int]]:
    """Return the resolutions (height, width) to which an image may be resized."""
    pinpoints = config.get("image_grid_pinpoints", list)
    for point in pinpoints[:MAX_PINPOINTS]:
        if not isinstance(point, list) or [type(side) for side in point] != [int, int]:
            raise UnknownModelError(
                f"image_grid_pinpoints in {config.where} must be pairs of sides"
            )
        if not least <= min(point) <= max(point) <= MAX_VALUE:
            bounds = f"{least} to {MAX_VALUE}"
            raise UnknownModelError(f"image_grid_pinpoints in {config.where} must be {bounds}")
    if not 1 <= len(pinpoints) <= MAX_PINPOINTS:
        raise UnknownModelError(
            f"image_grid_pinpoints in {config.where} must have 1 to {MAX_PINPOINTS} entries"
        )
    return [(height, width) for height, width in pinpoints]


def find_resolution(size: MediaSize, resolutions: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the resolution that keeps most pixels. Of several, return the one that pads least."""

    def fit(resolution: tuple[int, int]) -> tuple[int, int]:
        height, width = resolution
        scale = min(width / size.width, height / size.height)
        pixels = int(size.width * scale) * int(size.height * scale)
        kept = min(pixels, size.width * size.height)
        return kept, kept - height * width

    return max(resolutions, key=fit)
