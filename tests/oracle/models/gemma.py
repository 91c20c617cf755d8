"""Gemma's models."""

from pathlib import Path
from typing import Any

from tests.oracle.recipe import Recipe

_TOKENS = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
}

# The byte tokenizer has no tokens of several newlines; Gemma's has 31 of them.
_NEWLINES = tuple("\n" * count for count in range(1, 9))


def _gemma(**image: Any) -> Recipe:
    def processor(folder: Path) -> Any:
        from transformers import Gemma3ImageProcessor, Gemma3Processor, PreTrainedTokenizerFast

        return Gemma3Processor(
            tokenizer=PreTrainedTokenizerFast.from_pretrained(folder, extra_special_tokens=_TOKENS),
            image_processor=Gemma3ImageProcessor(size={"height": 896, "width": 896}, **image),
        )

    return Recipe(
        modality="image",
        special=(*_TOKENS.values(), *_NEWLINES),
        config={"model_type": "gemma3"},
        text="<start_of_image>",
        target="<start_of_image>",
        processor=processor,
        options=(
            {},
            {"do_pan_and_scan": True},
            {"do_pan_and_scan": True, "pan_and_scan_max_num_crops": 9},
            {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 100},
            {"do_pan_and_scan": True, "pan_and_scan_min_ratio_to_activate": 2.5},
        ),
    )


MODELS: dict[str, Recipe] = {
    "gemma3": _gemma(),
    "gemma3-file": _gemma(do_pan_and_scan=True, pan_and_scan_max_num_crops=2),
}
