"""Qwen's models."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.oracle.recipe import Recipe

_QWEN = (
    "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
_VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"


def _vision(
    name: str, image: dict[str, Any], video: dict[str, Any] | None = None
) -> Callable[[Path], Any]:
    """Return the builder of a processor: its class, and those of its parts with their settings."""

    def build(folder: Path) -> Any:
        import transformers

        classes = {
            "Qwen2VLProcessor": ("Qwen2VLImageProcessor", "Qwen2VLVideoProcessor"),
            "Qwen2_5_VLProcessor": ("Qwen2VLImageProcessor", "Qwen2VLVideoProcessor"),
            "Qwen3VLProcessor": ("Qwen2VLImageProcessor", "Qwen3VLVideoProcessor"),
        }[name]
        return getattr(transformers, name)(
            image_processor=getattr(transformers, classes[0])(**image),
            tokenizer=transformers.PreTrainedTokenizerFast.from_pretrained(folder),
            video_processor=getattr(transformers, classes[1])(**(video or {})),
        )

    return build


def _split_files(folder: Path) -> None:
    """Write the settings as transformers before release 5 did: a file for each processor."""
    path = folder / "processor_config.json"
    settings = json.loads(path.read_text())
    for part, name in (
        ("image_processor", "preprocessor_config.json"),
        ("video_processor", "video_preprocessor_config.json"),
    ):
        values = settings.pop(part)
        size = values.pop("size")
        values |= {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
        (folder / name).write_text(json.dumps(values))
    path.write_text(json.dumps(settings))


def _images(kind: str, name: str, **settings: Any) -> Recipe:
    return Recipe(
        modality="image",
        special=_QWEN,
        config={"model_type": kind},
        text=_IMAGE,
        target="<|image_pad|>",
        processor=_vision(name, settings),
        options=(
            {},
            {},
            {"min_pixels": 100_000},
            {"max_pixels": 500_000},
            {"size": {"shortest_edge": 4096, "longest_edge": 1_000_000}},
        ),
    )


def _videos(kind: str, name: str, **settings: Any) -> Recipe:
    return Recipe(
        modality="video",
        special=_QWEN,
        config={"model_type": kind},
        text=_VIDEO,
        target="<|video_pad|>",
        processor=_vision(name, {}, settings),
        options=({}, {"size": {"shortest_edge": 4096, "longest_edge": 10_000_000}}),
        most=2,
        vectors=25,
        arguments={"do_sample_frames": False},
    )


def _older(recipe: Recipe) -> Recipe:
    return Recipe(**{**vars(recipe), "rewrite": _split_files, "size": 2000})


_LARGE = {"size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}}

MODELS: dict[str, Recipe] = {
    "qwen2_vl": _images("qwen2_vl", "Qwen2VLProcessor"),
    "qwen2_vl-older": _older(
        _images("qwen2_vl", "Qwen2VLProcessor", min_pixels=3136, max_pixels=12_845_056)
    ),
    "qwen2_5_vl": _images("qwen2_5_vl", "Qwen2_5_VLProcessor", max_pixels=12_845_056),
    "qwen3_vl": _images("qwen3_vl", "Qwen3VLProcessor", patch_size=16, **_LARGE),
    "qwen3_vl_moe-older": _older(
        _images("qwen3_vl_moe", "Qwen3VLProcessor", patch_size=16, **_LARGE)
    ),
    "qwen2_vl-video": _videos("qwen2_vl", "Qwen2VLProcessor"),
    "qwen2_5_vl-video": _videos("qwen2_5_vl", "Qwen2_5_VLProcessor", cap_pixels_per_frame=True),
    "qwen3_vl-video": _videos("qwen3_vl", "Qwen3VLProcessor"),
    "qwen3_vl-video-capped": _videos("qwen3_vl", "Qwen3VLProcessor", cap_pixels_per_frame=True),
}
