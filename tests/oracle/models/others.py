"""Gemma's, Mistral's, Llama's and Phi's models."""

from collections.abc import Callable
from contextlib import AbstractContextManager
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
_PHI = {"image_token": "<|endoftext10|>", "audio_token": "<|endoftext11|>"}

# The byte tokenizer has no tokens of several newlines; Gemma's has 31 of them.
_NEWLINES = tuple("\n" * count for count in range(1, 9))


def _tokenizer(folder: Path, tokens: dict[str, str]) -> Any:
    import transformers

    return transformers.PreTrainedTokenizerFast.from_pretrained(folder, extra_special_tokens=tokens)


def _values_on_cpu() -> AbstractContextManager[Any]:
    """Make small tensors with values: two processors read masks and lists of sizes back."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            if func in {torch.ones, torch.tensor} and str(kwargs.get("device")) == "meta":
                kwargs["device"] = "cpu"
            return func(*args, **kwargs)

    return Mode()


def _read_values(kind: type) -> type:
    """Return a subclass of an image processor that has values on the CPU."""

    def preprocess(self: Any, *arguments: Any, **settings: Any) -> Any:
        with _values_on_cpu():
            return kind._preprocess(self, *arguments, **settings)  # type: ignore[attr-defined]

    return type(kind.__name__, (kind,), {"_preprocess": preprocess})


def _build(
    name: str,
    image: tuple[str, dict[str, Any]],
    tokens: dict[str, str] | None = None,
    **settings: Any,
) -> Callable[[Path], Any]:
    """Return the builder of a processor: its class, its image processor, and their settings."""

    def build(folder: Path) -> Any:
        import transformers

        kind = getattr(transformers, image[0])
        if image[0] in {"Llama4ImageProcessor", "Phi4MultimodalImageProcessor"}:
            kind = _read_values(kind)
        parts = {"image_processor": kind(**image[1])}
        if name == "Phi4MultimodalProcessor":
            parts["audio_processor"] = transformers.Phi4MultimodalFeatureExtractor()
        tokenizer = _tokenizer(folder, tokens or {})
        return getattr(transformers, name)(tokenizer=tokenizer, **parts, **settings)

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


def _phi(**image: Any) -> Recipe:
    return Recipe(
        modality="image",
        special=tuple(_PHI.values()),
        config={"model_type": "phi4_multimodal"},
        text="<|endoftext10|>",
        target="<|endoftext10|>",
        processor=_build("Phi4MultimodalProcessor", ("Phi4MultimodalImageProcessor", image), _PHI),
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
    "phi4": _phi(),
    "phi4-small": _phi(dynamic_hd=9),
}
