"""Resize images and frames to whole patches within limits of pixels."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from mmhash.errors import InputValueError
from mmhash.prompts.items import check_count
from mmhash.prompts.section import Section, UnknownModelError

# The largest ratio of an image's longer side to the shorter that processors accept.
MAX_RATIO = 200

# Larger numbers are not exact in the processors' arithmetic.
_MAX_PIXELS = 1 << 53


class PixelRange(NamedTuple):
    """The range of pixels to which an item is resized."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Patches:
    """How a processor cuts an item into patches, and merges patches into tokens."""

    size: int
    merge: int
    frames: int
    """The number of frames that share a patch."""
    pixels: PixelRange

    @classmethod
    def read(
        cls, settings: Section, pixels: PixelRange, *, size: int = 14, older_names: bool = True
    ) -> "Patches":
        """Read the settings of a model's file. Missing settings get the processor's defaults."""
        if not settings.values:
            raise UnknownModelError(f"the model has no {settings.where}")
        if not settings.get("do_resize", bool, default=True):
            raise UnknownModelError(f"do_resize in {settings.where} must not be false")
        found = cls(
            settings.get("patch_size", int, size),
            settings.get("merge_size", int, 2),
            settings.get("temporal_patch_size", int, 2),
            read_pixels(settings, pixels, older_names=older_names),
        )
        if min(found.size, found.merge, found.frames) < 1:
            raise UnknownModelError(f"a size in {settings.where} is less than 1")
        return found

    @property
    def factor(self) -> int:
        """The side, in pixels, of the square that a token covers."""
        return self.size * self.merge

    def grid(self, height: int, width: int, frames: int = 1) -> tuple[int, int, int]:
        """Return the number of patches in time, in height and in width."""
        return -(-frames // self.frames), height // self.size, width // self.size

    def tokens(self, grid: tuple[int, int, int]) -> int:
        """Return the number of tokens of a step in time.

        Raise LimitError if all steps together have too many tokens.
        """
        count = grid[1] * grid[2] // self.merge**2
        check_count(grid[0] * count)
        return count

    def resize_image(self, height: int, width: int, pixels: PixelRange) -> tuple[int, int]:
        """Return the height and width, in whole tokens, to which Qwen2-VL resizes an image."""
        _check_ratio(height, width)
        return self._fit(height, width, pixels)

    def resize_frames(
        self, frames: int, height: int, width: int, pixels: PixelRange
    ) -> tuple[int, int]:
        """Return the height and width of frames that share one limit of pixels.

        A side shorter than a token is enlarged first.
        """
        if frames < self.frames:
            raise InputValueError(
                f"the model takes no video of {frames} frames: it needs at least {self.frames}"
            )
        if 0 < min(height, width) < self.factor:
            scale = max(self.factor / height, self.factor / width)
            height, width = int(height * scale), int(width * scale)
        _check_ratio(height, width)
        return self._fit(height, width, pixels, frames, round(frames / self.frames) * self.frames)

    def _fit(
        self, height: int, width: int, pixels: PixelRange, frames: int = 1, counted: int = 1
    ) -> tuple[int, int]:
        """Round the sides, or scale them to the limits.

        `counted` frames count towards the limits.
        """
        factor = self.factor
        rows, columns = round(height / factor) * factor, round(width / factor) * factor
        # The operations follow the processors' order, because another order rounds differently.
        if counted * rows * columns > pixels.most:
            scale = math.sqrt(frames * height * width / pixels.most)
            rows = max(factor, math.floor(height / scale / factor) * factor)
            columns = max(factor, math.floor(width / scale / factor) * factor)
        elif counted * rows * columns < pixels.least:
            scale = math.sqrt(pixels.least / (frames * height * width))
            rows = math.ceil(height * scale / factor) * factor
            columns = math.ceil(width * scale / factor) * factor
        return rows, columns


def read_pixels(settings: Section, default: PixelRange, *, older_names: bool = True) -> PixelRange:
    """Return the limits in `size`, or in older files `min_pixels` and `max_pixels`."""
    found = list(default)
    size = settings.section("size") if "size" in settings else None
    names = (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge"))
    for index, (older, edge) in enumerate(names):
        if older_names and older in settings:
            found[index] = settings.get(older, int)
        elif size is not None:
            # The processor uses `size` as a whole: a missing edge has no default.
            found[index] = size.get(edge, int)
        if not 1 <= found[index] <= _MAX_PIXELS:
            raise UnknownModelError(
                f"a limit of pixels in {settings.where} must be 1 to 2**53, not {found[index]}"
            )
    return PixelRange(*found)


def _check_ratio(height: int, width: int) -> None:
    if min(height, width) < 1 or max(height, width) / min(height, width) > MAX_RATIO:
        raise InputValueError(
            f"the model takes no image of {width} x {height} pixels: a side may be at most"
            f" {MAX_RATIO} times as long as the other"
        )
