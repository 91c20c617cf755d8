"""Tiny models of the families that plans know: configs with one or two layers, and processors.

They have few layers and small sides, so an engine starts quickly and an image has few tokens.
"""

from dataclasses import dataclass, field
from typing import Any

BYTES = 256
"""The number of single-byte tokens. Special tokens have the ids after them."""

COMMON = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCABULARY = 384

_SCALE = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_STEPS = {"do_resize": True, "do_rescale": True, "do_normalize": True, **_SCALE}


@dataclass(frozen=True)
class Tiny:
    """A tiny model: its files, without the tokenizer's files."""

    special: tuple[str, ...]
    """The tokens that the family adds to a tokenizer."""
    config: dict[str, Any]
    image: str
    """The text with which a template marks an image."""
    files: dict[str, dict[str, Any]]
    """The other files by name."""
    names: dict[str, str] = field(default_factory=dict)
    """The tokens that tokenizer_config.json names."""
    template_of_texts: bool = False
    """True if the chat template takes messages as text into which the engine puts images."""
    video: str = ""
    """The text with which a template marks a video, if plans know videos of the family."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of media that plans of the family know."""
        return tuple(kind for kind in ("image", "video") if getattr(self, kind))


def token_id(special: tuple[str, ...], token: str) -> int:
    """Return the id of a special token."""
    return BYTES + (*COMMON, *special).index(token)


def _text(kind: str, **others: Any) -> dict[str, Any]:
    """Return the config of a language model with two heads of 64, the smallest that vLLM has."""
    return {
        "model_type": kind,
        "torch_dtype": "float32",
        "vocab_size": VOCABULARY,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "max_position_embeddings": 16384,
        "rms_norm_eps": 1e-6,
        "bos_token_id": BYTES,
        "eos_token_id": BYTES + 2,
        "pad_token_id": BYTES,
        "tie_word_embeddings": True,
        **others,
    }


def _tower(kind: str, **others: Any) -> dict[str, Any]:
    return {
        "model_type": kind,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 112,
        "patch_size": 14,
        **others,
    }


def _config(architecture: str, kind: str, **others: Any) -> dict[str, Any]:
    return {
        "architectures": [f"{architecture}ForConditionalGeneration"],
        "model_type": kind,
        "torch_dtype": "float32",
        "tie_word_embeddings": True,
        "eos_token_id": BYTES + 2,
        "pad_token_id": BYTES,
        **others,
    }


_QWEN = ("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>")
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"
"""The text of a video in prompts of Qwen's models."""
_MROPE = {"rope_type": "default", "type": "mrope", "mrope_section": [8, 12, 12]}


def _qwen_files(image: dict[str, Any], video: dict[str, Any], name: str) -> dict[str, Any]:
    kind = {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": f"{name}Processor"}
    return {
        "preprocessor_config.json": kind | image | _STEPS,
        "video_preprocessor_config.json": video | _STEPS,
    }


def _qwen_tokens() -> dict[str, int]:
    return {
        "vision_start_token_id": token_id(_QWEN, "<|vision_start|>"),
        "vision_end_token_id": token_id(_QWEN, "<|vision_end|>"),
        "vision_token_id": token_id(_QWEN, "<|vision_pad|>"),
        "image_token_id": token_id(_QWEN, "<|image_pad|>"),
        "video_token_id": token_id(_QWEN, "<|video_pad|>"),
    }


def _qwen2_5_vl() -> Tiny:
    patches = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    pixels = {"min_pixels": 3136, "max_pixels": 200704}
    vision = {
        "depth": 2, "hidden_size": 64, "out_hidden_size": 128, "intermediate_size": 128,
        "num_heads": 2, "in_channels": 3, "in_chans": 3, "patch_size": 14, "spatial_patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112,
        "fullatt_block_indexes": [1], "tokens_per_second": 2, "hidden_act": "silu",
    }  # fmt: skip
    text = _text("qwen2_5_vl", rope_theta=1e6, rope_scaling=_MROPE, hidden_act="silu")
    config = text | _config("Qwen2_5_VL", "qwen2_5_vl") | _qwen_tokens()
    return Tiny(
        _QWEN,
        config | {"vision_config": vision},
        "<|vision_start|><|image_pad|><|vision_end|>",
        _qwen_files(
            patches | pixels,
            patches | pixels | {"video_processor_type": "Qwen2VLVideoProcessor"},
            "Qwen2_5_VL",
        ),
        video=VIDEO,
    )


def _qwen3_vl() -> Tiny:
    patches = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}
    pixels = {"size": {"shortest_edge": 65_536, "longest_edge": 262_144}}
    vision = {
        "model_type": "qwen3_vl", "depth": 2, "hidden_size": 64, "out_hidden_size": 128,
        "intermediate_size": 128, "num_heads": 2, "in_channels": 3, "patch_size": 16,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 256,
        "deepstack_visual_indexes": [0], "hidden_act": "gelu_pytorch_tanh",
    }  # fmt: skip
    rope = {"rope_type": "default", "mrope_section": [8, 12, 12], "mrope_interleaved": True}
    text = _text("qwen3_vl_text", rope_theta=1e6, rope_scaling=rope, hidden_act="silu")
    return Tiny(
        _QWEN,
        _config("Qwen3VL", "qwen3_vl", text_config=text, vision_config=vision) | _qwen_tokens(),
        "<|vision_start|><|image_pad|><|vision_end|>",
        _qwen_files(
            patches | pixels,
            patches | pixels | {"video_processor_type": "Qwen3VLVideoProcessor"},
            "Qwen3VL",
        ),
        video=VIDEO,
    )


_GLM = (
    "<|begin_of_image|>", "<|end_of_image|>", "<|image|>", "<|begin_of_video|>",
    "<|end_of_video|>", "<|video|>",
)  # fmt: skip


def _glm4v() -> Tiny:
    patches = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    pixels = {"size": {"shortest_edge": 12_544, "longest_edge": 401_408}}
    kind = {"processor_class": "Glm4vProcessor"}
    vision = {
        "model_type": "glm4v_vision", "depth": 1, "hidden_size": 64, "out_hidden_size": 128,
        "intermediate_size": 128, "num_heads": 2, "in_channels": 3, "image_size": 336,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "hidden_act": "silu",
    }  # fmt: skip
    rope = {
        "rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6],
        "partial_rotary_factor": 0.5,
    }  # fmt: skip
    text = _text(
        "glm4v_text", rope_scaling=rope, rope_parameters=rope, partial_rotary_factor=0.5,
        hidden_act="silu",
    )  # fmt: skip
    names = {
        "image_start_token_id": "<|begin_of_image|>", "image_end_token_id": "<|end_of_image|>",
        "image_token_id": "<|image|>", "video_start_token_id": "<|begin_of_video|>",
        "video_end_token_id": "<|end_of_video|>", "video_token_id": "<|video|>",
    }  # fmt: skip
    tokens = {name: token_id(_GLM, token) for name, token in names.items()}
    return Tiny(
        _GLM,
        _config("Glm4v", "glm4v", text_config=text, vision_config=vision) | tokens,
        "<|begin_of_image|><|image|><|end_of_image|>",
        {
            "preprocessor_config.json": {
                **kind, "image_processor_type": "Glm4vImageProcessor", **patches, **pixels, **_STEPS
            },
            "video_preprocessor_config.json": {
                **kind, "video_processor_type": "Glm4vVideoProcessor", **patches, **pixels, **_STEPS
            },
        },
    )  # fmt: skip


_LLAVA = ("<image>", "<video>")
_PINPOINTS = [[112, 224], [224, 112], [224, 224], [336, 112], [112, 336]]
_CLIP = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 112},
    "crop_size": {"height": 112, "width": 112},
    "do_center_crop": True,
    **_STEPS,
}


def _llava(
    name: str,
    kind: str,
    image: dict[str, Any],
    processor: dict[str, Any],
    text: str = "llama",
    **config: Any,
) -> Tiny:
    tokens = {"image_token_index": token_id(_LLAVA, "<image>")}
    given = _config(name, kind, text_config=_text(text), **config) | tokens
    processor = {"processor_class": f"{name}Processor", "image_token": "<image>", **processor}
    return Tiny(
        _LLAVA,
        given,
        "<image>",
        {"preprocessor_config.json": image, "processor_config.json": processor},
        template_of_texts=kind == "llava",
    )


def _llava_1_5() -> Tiny:
    return _llava(
        "Llava",
        "llava",
        _CLIP,
        {
            "patch_size": 14,
            "num_additional_image_tokens": 1,
            "vision_feature_select_strategy": "default",
        },
        vision_config=_tower("clip_vision_model", projection_dim=64),
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
    )


def _llava_next() -> Tiny:
    image = _CLIP | {
        "image_processor_type": "LlavaNextImageProcessor",
        "image_grid_pinpoints": _PINPOINTS,
    }
    return _llava(
        "LlavaNext",
        "llava_next",
        image,
        {
            "patch_size": 14,
            "num_additional_image_tokens": 1,
            "vision_feature_select_strategy": "default",
        },
        vision_config=_tower("clip_vision_model", projection_dim=64),
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        image_grid_pinpoints=_PINPOINTS,
        use_image_newline_parameter=True,
    )


def _llava_onevision() -> Tiny:
    points = [[112 * rows, 112 * columns] for rows in range(1, 7) for columns in range(1, 7)]
    image = {
        "image_processor_type": "LlavaOnevisionImageProcessor",
        "size": {"height": 112, "width": 112},
        "image_grid_pinpoints": points,
        **_STEPS,
    }
    made = _llava(
        "LlavaOnevision",
        "llava_onevision",
        image,
        {"num_image_tokens": 64, "vision_feature_select_strategy": "full"},
        "qwen2",
        vision_config=_tower("siglip_vision_model", vision_use_head=False),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        image_grid_pinpoints=points,
        video_token_index=token_id(_LLAVA, "<video>"),
    )
    video = {
        "video_processor_type": "LlavaOnevisionVideoProcessor",
        "size": {"height": 112, "width": 112},
        **_STEPS,
    }
    made.files["video_preprocessor_config.json"] = video
    return made


_INTERN = ("<img>", "</img>", "<IMG_CONTEXT>", "<video>")


def _internvl() -> Tiny:
    names = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    image = {
        "image_processor_type": "GotOcr2ImageProcessor",
        "size": {"height": 112, "width": 112},
        "crop_to_patches": False,
        "min_patches": 1,
        "max_patches": 12,
        **_STEPS,
    }
    video = {
        "video_processor_type": "InternVLVideoProcessor",
        "size": {"height": 112, "width": 112},
        **_STEPS,
    }
    vision = _tower("internvl_vision") | {"image_size": [112, 112], "patch_size": [14, 14]}
    config = _config(
        "InternVL", "internvl", text_config=_text("qwen2"), vision_config=vision,
        image_seq_length=16, downsample_ratio=0.5, image_token_id=token_id(_INTERN, "<IMG_CONTEXT>"),
    )  # fmt: skip
    return Tiny(
        _INTERN,
        config,
        "<IMG_CONTEXT>",
        {
            "preprocessor_config.json": image,
            "video_preprocessor_config.json": video,
            "processor_config.json": {
                "processor_class": "InternVLProcessor",
                "image_seq_length": 16,
            },
        },
        names,
    )


_GEMMA = ("<start_of_image>", "<end_of_image>", "<image_soft_token>")
# Gemma's tokenizer has tokens of up to 31 newlines.
_NEWLINES = tuple("\n" * count for count in range(1, 9))


def _gemma3() -> Tiny:
    special = (*_GEMMA, *_NEWLINES)
    names = {
        "boi_token": _GEMMA[0], "eoi_token": _GEMMA[1], "image_token": _GEMMA[2]
    }  # fmt: skip
    text = _text(
        "gemma3_text", query_pre_attn_scalar=64, sliding_window=512, layer_types=["full_attention"],
        hidden_activation="gelu_pytorch_tanh",
    )  # fmt: skip
    config = _config(
        "Gemma3", "gemma3", text_config=text, mm_tokens_per_image=16,
        vision_config=_tower("siglip_vision_model", vision_use_head=False),
        boi_token_index=token_id(special, _GEMMA[0]),
        eoi_token_index=token_id(special, _GEMMA[1]),
        image_token_index=token_id(special, _GEMMA[2]),
    )  # fmt: skip
    image = {
        "image_processor_type": "Gemma3ImageProcessor",
        "size": {"height": 112, "width": 112},
        **_STEPS,
    }
    return Tiny(
        special,
        config,
        "<start_of_image>",
        {
            "preprocessor_config.json": image,
            "processor_config.json": {"processor_class": "Gemma3Processor", "image_seq_length": 16},
        },
        names,
    )


_MISTRAL = ("[IMG]", "[IMG_BREAK]", "[IMG_END]")


def _pixtral(name: str, kind: str, patch: int, merge: int) -> Tiny:
    side = 252 if patch == 14 else 256
    text = _text("mistral", sliding_window=None)  # as in the real models; the default is 4096
    vision = _tower("pixtral", head_dim=32) | {"image_size": side, "patch_size": patch}
    config = _config(
        name, kind, text_config=text, vision_config=vision, vision_feature_layer=-1,
        image_token_index=token_id(_MISTRAL, "[IMG]"),
        vision_feature_select_strategy="full",
    )  # fmt: skip
    processor = {"processor_class": "PixtralProcessor", "patch_size": patch, "image_token": "[IMG]"}
    if merge > 1:
        config["spatial_merge_size"] = processor["spatial_merge_size"] = merge
    image = {
        "image_processor_type": "PixtralImageProcessor",
        "size": {"longest_edge": side},
        "patch_size": patch,
        **_STEPS,
    }
    return Tiny(
        _MISTRAL,
        config,
        "[IMG]",
        {"preprocessor_config.json": image, "processor_config.json": processor},
    )


TINY: dict[str, Tiny] = {
    "qwen2_5_vl": _qwen2_5_vl(),
    "qwen3_vl": _qwen3_vl(),
    "glm4v": _glm4v(),
    "llava": _llava_1_5(),
    "llava_next": _llava_next(),
    "llava_onevision": _llava_onevision(),
    "internvl": _internvl(),
    "gemma3": _gemma3(),
    "pixtral": _pixtral("Llava", "llava", 16, 1),
    "mistral3": _pixtral("Mistral3", "mistral3", 14, 2),
}
