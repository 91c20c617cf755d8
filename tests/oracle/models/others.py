"""Gemma's and Mistral's models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.oracle.recipe import Recipe

_PIXTRAL = {"model_type": "pixtral"}

_GEMMA = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
}
_MISTRAL = ("[IMG]", "[IMG_BREAK]", "[IMG_END]")

# The byte tokenizer has no tokens of several newlines; Gemma's has 31 of them.
_NEWLINES = tuple("\n" * count for count in range(1, 9))


def _tokenizer(folder: Path, tokens: dict[str, str]) -> Any:
    import transformers

    return transformers.PreTrainedTokenizerFast.from_pretrained(folder, extra_special_tokens=tokens)


def _build(
    name: str,
    image: tuple[str, dict[str, Any]],
    tokens: dict[str, str] | None = None,
    **settings: Any,
) -> Callable[[Path], Any]:
    """Return the builder of a processor: its class, its image processor, and their settings."""

    def build(folder: Path) -> Any:
        import transformers

        kind, values = image
        return getattr(transformers, name)(
            tokenizer=_tokenizer(folder, tokens or {}),
            image_processor=getattr(transformers, kind)(**values),
            **settings,
        )

    return build


def _pixtral(kind: str, image: dict[str, Any], **settings: Any) -> Recipe:
    config = {"model_type": kind, **settings.pop("config"), "image_token_index": 258}
    options = ({}, {}, {"size": {"longest_edge": 700}}) if kind == "mistral3" else ({},)
    return Recipe(
        modality="image",
        special=_MISTRAL,
        config=config,
        text="[IMG]",
        target="[IMG]",
        processor=_build("PixtralProcessor", ("PixtralImageProcessor", image), **settings),
        options=options,
    )


def _gemma(**image: Any) -> Recipe:
    return Recipe(
        modality="image",
        special=(*_GEMMA.values(), *_NEWLINES),
        config={"model_type": "gemma3"},
        text="<start_of_image>",
        target="<start_of_image>",
        processor=_build(
            "Gemma3Processor",
            ("Gemma3ImageProcessor", {"size": {"height": 896, "width": 896}, **image}),
            _GEMMA,
        ),
        options=(
            {},
            {"do_pan_and_scan": True},
            {"do_pan_and_scan": True, "pan_and_scan_max_num_crops": 9},
            {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 100},
            {"do_pan_and_scan": True, "pan_and_scan_min_ratio_to_activate": 2.5},
        ),
    )


MODELS: dict[str, Recipe] = {
    "pixtral": _pixtral("llava", {}, config={"vision_config": _PIXTRAL}, patch_size=16),
    "mistral3": _pixtral(
        "mistral3",
        {"size": {"longest_edge": 1540}, "patch_size": 14},
        config={"vision_config": _PIXTRAL | {"image_size": 1540, "patch_size": 14}},
        patch_size=14,
        spatial_merge_size=2,
    ),
    "gemma3": _gemma(),
    "gemma3-file": _gemma(do_pan_and_scan=True, pan_and_scan_max_num_crops=2),
}
