"""Qwen2-VL and Qwen2.5-VL: a token stands for a square of patches of an image or of frames."""

from collections.abc import Mapping
from typing import Any

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import Family, Placeholder
from mmhash.prompts.families.patches import Patches, PixelRange, read_pixels
from mmhash.prompts.families.processor_options import read_options
from mmhash.prompts.files import ModelFiles
from mmhash.prompts.items import Expansion, MediaSize
from mmhash.prompts.section import Section, UnknownModelError
from mmhash.requests import Modality

PIXEL_OPTIONS = ("min_pixels", "max_pixels", "size")

_IMAGE = Placeholder("<|image_pad|>", "<|vision_start|><|image_pad|><|vision_end|>")
_VIDEO = Placeholder("<|video_pad|>", "<|vision_start|><|video_pad|><|vision_end|>")

# The context length, in tokens, that limits the pixels of all frames of a video.
_MAX_VIDEO_TOKENS = 128_000


class Qwen2VL(Family):
    """Images and videos of Qwen2-VL and Qwen2.5-VL."""

    def __init__(self, files: ModelFiles, engine: str = "", release: str = "") -> None:
        super().__init__(files, engine, release)
        self.image = read_image_patches(files.image_processor)
        self.image_token = files.encoder.token_id("<|image_pad|>")
        self.video_token = files.encoder.token_id("<|video_pad|>")
        # Older models have one file for images and videos.
        settings = files.video_processor if files.video_processor.values else files.image_processor
        self._read_video(settings)
        self.placeholders = {"image": _IMAGE}
        if self.takes_video():
            self.placeholders = {"image": _IMAGE, "video": _VIDEO}

    def _read_video(self, settings: Section) -> None:
        self.video = Patches.read(settings, PixelRange(128 * 28 * 28, 768 * 28 * 28))
        self.is_capped = settings.get("cap_pixels_per_frame", bool, default=False)
        self.max_video_tokens = settings.get("max_video_tokens", int, _MAX_VIDEO_TOKENS)

    def takes_video(self) -> bool:
        """Return True if the frames' size is known.

        SGLang resizes frames first, to an unknown size.
        """
        return self.engine != "sglang"

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return a token for each square of patches."""
        if modality == "image":
            return self._expand_image(size, options)
        return self._expand_video(size, options)

    def _expand_image(self, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        pixels = self.image.pixels
        if options:
            pixels = read_pixels(read_options(options, "images_kwargs", PIXEL_OPTIONS), pixels)
        height, width = self.image.resize_image(size.height, size.width, pixels)
        # The processor repeats an image as the frames of a patch.
        grid = self.image.grid(height, width)
        count = self.image.tokens(grid)
        return Expansion([self.image_token] * count, [(0, count)], grid)

    def _expand_video(self, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        chosen = read_options(options, "videos_kwargs", PIXEL_OPTIONS)
        least, most = read_pixels(chosen, self.video.pixels)
        if size.frames < 1:
            raise InputValueError("the number of the video's frames is not known")
        if self.is_capped:
            total = int(self.max_video_tokens * self.video.factor**2 * 0.9)
            share = total * self.video.frames // size.frames
            most = max(min(most, share), int(least * 1.05))
        height, width = self.video.resize_image(size.height, size.width, PixelRange(least, most))
        grid = self.video.grid(height, width, size.frames)
        count = grid[0] * self.video.tokens(grid)
        return Expansion([self.video_token] * count, [(0, count)], grid)


def read_image_patches(settings: Section) -> Patches:
    """Read the settings of Qwen2-VL's image processor, which Qwen3-VL shares."""
    kind = settings.get("image_processor_type", str, "Qwen2VLImageProcessor")
    if kind.removesuffix("Fast").removesuffix("Pil") != "Qwen2VLImageProcessor":
        raise UnknownModelError(
            f"mmhash does not know the image_processor_type {kind[:60]!r} in {settings.where}"
        )
    return Patches.read(settings, PixelRange(56 * 56, 28 * 28 * 1280))
