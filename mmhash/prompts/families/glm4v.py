"""GLM-4.1V, GLM-4.5V and GLM-4.6V: images in patches, and videos with each frame's second."""

from collections.abc import Mapping
from typing import Any, ClassVar

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import Expansion, Family, MediaSize, Modality, Placeholder
from mmhash.prompts.families.patches import Patches, PixelRange, read_pixels
from mmhash.prompts.families.processor_options import read_options
from mmhash.prompts.families.qwen3_vl import frame_times
from mmhash.prompts.files import ModelFiles, Section, UnknownModelError


class Glm4V(Family):
    """Images and videos of GLM-4.1V (glm4v), GLM-4.5V (glm4v_moe) and GLM-4.6V (glm46v)."""

    model_types: ClassVar[frozenset[str]] = frozenset({"glm4v", "glm4v_moe", "glm46v"})

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.is_46 = files.config.get("model_type", str) == "glm46v"
        self.image = self._read(files.image_processor, "image", PixelRange(112 * 112, 15_000 * 784))
        self.image_token = files.token_id("<|image|>")
        self.start = files.token_id("<|begin_of_image|>")
        self.end = files.token_id("<|end_of_image|>")
        self.video: Patches | None = None
        if files.video_processor.values and files.engine != "sglang":
            pixels = PixelRange(112 * 112, 60_000 * 784)
            self.video = self._read(files.video_processor, "video", pixels)

    def _read(self, settings: Section, kind: str, pixels: PixelRange) -> Patches:
        expected = f"{'Glm46V' if self.is_46 else 'Glm4v'}{kind.capitalize()}Processor"
        found = settings.get(f"{kind}_processor_type", str, expected)
        if found.removesuffix("Fast").removesuffix("Pil") != expected:
            raise UnknownModelError(f"{kind}_processor_type {found[:60]!r} in {settings.where}")
        return Patches.read(settings, pixels, older_names=False)

    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholders. vLLM also replaces the tokens around a video's target."""
        placeholders: dict[Modality, Placeholder] = {
            "image": Placeholder("<|image|>", "<|begin_of_image|><|image|><|end_of_image|>")
        }
        if self.video is not None:
            text = "<|begin_of_video|><|video|><|end_of_video|>"
            placeholders["video"] = Placeholder(text, text)
        return placeholders

    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return the tokens of an image, or of a video's frames and their seconds."""
        if modality == "image":
            return self._expand_image(size, options)
        if modality == "video" and self.video is not None:
            return self._expand_video(self.video, size, options)
        raise UnknownModelError(f"mmhash cannot plan {modality} items of this model")

    def _expand_image(self, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        patches = self.image
        pixels = read_pixels(
            read_options(options, "images_kwargs", ("size",)), patches.pixels, older_names=False
        )
        # The image fills all frames of a patch, and the pixels of all frames count.
        height, width = patches.resize_frames(patches.frames, size.height, size.width, pixels)
        grid = patches.grid(height, width)
        return Expansion([self.image_token] * patches.tokens(grid), grid=grid)

    def _expand_video(
        self, patches: Patches, size: MediaSize, options: Mapping[str, Any]
    ) -> Expansion:
        if size.in_prompt > 1 and self.files.engine == "vllm":
            raise InputValueError("vLLM accepts only one video in a prompt of this model")
        chosen = read_options(options, "videos_kwargs", ("size",))
        pixels = read_pixels(chosen, patches.pixels, older_names=False)
        height, width = patches.resize_frames(size.frames, size.height, size.width, pixels)
        grid = patches.grid(height, width, size.frames)
        count = patches.tokens(grid)
        seconds = frame_times(size)[::2]
        seconds = (seconds + seconds[-1:] * grid[0])[: grid[0]]
        ids = [self.files.token_id("<|begin_of_video|>")]
        embeds = []
        for second in seconds:
            ids.append(self.start)
            embeds.append((len(ids), len(ids) + count))
            ids += [self.image_token] * count
            ids += [self.end, *self.files.encode(self._format(second))]
        return Expansion([*ids, self.files.token_id("<|end_of_video|>")], embeds, grid)

    def _format(self, second: float) -> str:
        """Return a frame's second as the prompt spells it. vLLM rounds down for GLM-4.6V."""
        if not self.is_46:
            return f"{int(second)}"
        return f"{float(int(second)) if self.files.engine == 'vllm' else second:.1f} seconds"
