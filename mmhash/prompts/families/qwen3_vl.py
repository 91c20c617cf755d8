"""Qwen3-VL: images as in Qwen2-VL, and videos in which each step follows its time in seconds."""

from collections.abc import Mapping
from typing import Any

from mmhash.engines.releases import is_since
from mmhash.engines.sglang.releases import RELEASES
from mmhash.errors import InputValueError
from mmhash.prompts.families.patches import Patches, PixelRange, read_pixels
from mmhash.prompts.families.processor_options import read_options
from mmhash.prompts.families.qwen2_vl import PIXEL_OPTIONS, Qwen2VL
from mmhash.prompts.files import ModelFiles
from mmhash.prompts.items import Expansion, MediaSize
from mmhash.prompts.section import Section, UnknownModelError


class Qwen3VL(Qwen2VL):
    """Images and videos of Qwen3-VL."""

    per_video_options = True

    def __init__(self, files: ModelFiles, engine: str = "", release: str = "") -> None:
        super().__init__(files, engine, release)
        self.start = files.encoder.token_id("<|vision_start|>")
        self.end = files.encoder.token_id("<|vision_end|>")

    def _read_video(self, settings: Section) -> None:
        kind = settings.get("video_processor_type", str, "")
        if kind != "Qwen3VLVideoProcessor":
            raise UnknownModelError(
                f"mmhash does not know the video_processor_type {kind[:60]!r} in {settings.where}"
            )
        self.video = Patches.read(
            settings, PixelRange(128 * 32 * 32, 768 * 32 * 32), size=16, older_names=False
        )
        self.is_capped = settings.get("cap_pixels_per_frame", bool, default=False)
        self.max_video_tokens = settings.get("max_video_tokens", int, 768)

    def takes_video(self) -> bool:
        """Return True if the engine's prompt for a video is known.

        SGLang resizes frames before the processor. Whether vLLM before 0.30 also replaces the
        tokens around a video depends on the installed release of transformers.
        """
        if self.engine == "vllm" and not is_since(self.release, "0.30"):
            return False
        return super().takes_video()

    def takes_hashes(self) -> bool:
        """Return True if the engine accepts a caller's hashes.

        Since 0.5.20, SGLang pads the prompt before it reads the hashes. The scheduler then finds no
        place for the image, and exits.
        """
        return self.engine != "sglang" or not RELEASES.recipe(self.release).namespaces

    def _expand_video(self, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        known = PIXEL_OPTIONS if self.engine == "vllm" else ("size",)
        chosen = read_options(options, "videos_kwargs", known)
        least, most = read_pixels(chosen, self.video.pixels)
        if self.is_capped and size.frames > 0:
            ceiling = self.max_video_tokens * self.video.factor**2
            share = max(min(ceiling, most // size.frames), int(least * 1.05))
            most = share * size.frames
        height, width = self.video.resize_frames(
            size.frames, size.height, size.width, PixelRange(least, most)
        )
        grid = self.video.grid(height, width, size.frames)
        count = self.video.tokens(grid)
        ids: list[int] = []
        embeds = []
        for seconds in step_seconds(size, self.video.frames):
            ids += [*self.files.encoder.encode(f"<{seconds:.1f} seconds>"), self.start]
            embeds.append((len(ids), len(ids) + count))
            ids += [self.video_token] * count
            ids.append(self.end)
        return Expansion(ids, embeds, grid)


def frame_times(size: MediaSize) -> list[float]:
    """Return the time of each frame of a video, in seconds."""
    if size.times:
        if len(size.times) != size.frames:
            raise InputValueError(
                f"a video of {size.frames} frames needs as many times, not {len(size.times)}"
            )
        return list(size.times)
    if not size.fps or size.fps <= 0:
        raise InputValueError(
            "the prompt states the seconds of a video's frames: pass fps or times"
        )
    return [index / size.fps for index in range(size.frames)]


def step_seconds(size: MediaSize, together: int) -> list[float]:
    """Return the middle of each step of `together` frames. The last frame is repeated if needed."""
    times = frame_times(size)
    times += times[-1:] * (-len(times) % together)
    return [(times[i] + times[i + together - 1]) / 2 for i in range(0, len(times), together)]
