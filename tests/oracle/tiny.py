"""Directories of models that transformers has a processor for: default settings, a tokenizer of bytes.

Runs in the engine's environment. A model has no weights; its config.json names the tokens of its
tokenizer. `RECIPES` has what the defaults of transformers leave out.
"""

import inspect
import re
from pathlib import Path
from typing import Any

import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers.models.auto import modeling_auto
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
from transformers.models.auto.video_processing_auto import VIDEO_PROCESSOR_MAPPING_NAMES

_ARCHITECTURES = (
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
)
_PARTS = {
    "image_processor": IMAGE_PROCESSOR_MAPPING_NAMES,
    "video_processor": VIDEO_PROCESSOR_MAPPING_NAMES,
    "feature_extractor": FEATURE_EXTRACTOR_MAPPING_NAMES,
    "audio_processor": FEATURE_EXTRACTOR_MAPPING_NAMES,
}

# Of tokenizers whose processor asks them for a token that these names have.
_NAMES = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "audio_token": "<|audio_pad|>",
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
}

_CROP = {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}
_LLAVA = {
    "image_processor": _CROP,
    "settings": {
        "patch_size": 14,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
    },
}
_VISION_IDS = {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
_QWEN = {"ids": _VISION_IDS}
_GLM = {
    "tokens": [f"<|{edge}_of_{item}|>" for edge in ("begin", "end") for item in ("image", "video")]
}
_GEMMA = {
    "named": {
        "image_token": "<|image|>",
        "audio_token": "<|audio|>",
        "boi_token": "<|image>",
        "eoi_token": "<image|>",
        "boa_token": "<|audio>",
        "eoa_token": "<audio|>",
    },
    "ids": {
        "boi_token_id": "<|image>",
        "eoi_token_id": "<image|>",
        "boa_token_id": "<|audio>",
        "eoa_token_index": "<audio|>",
    },
}
_GEMMA_CONFIG = {"vision_config": {"default_output_length": 280}, "audio_config": {}}

RECIPES: dict[str, dict[str, Any]] = {
    "aria": {"named": {"image_token": "<|img|>"}},
    "cosmos3_edge": _QWEN,
    "diffusion_gemma": {
        **_GEMMA,
        "config": _GEMMA_CONFIG,
        "classes": {
            "image_processor": "Gemma4ImageProcessor",
            "video_processor": "Gemma4VideoProcessor",
            "feature_extractor": "Gemma4AudioFeatureExtractor",
        },
    },
    "gemma4": {**_GEMMA, "config": _GEMMA_CONFIG},
    "gemma4_unified": {
        **_GEMMA,
        "config": {"vision_config": {"num_soft_tokens": 280}, "audio_config": {}},
    },
    "glm46v": _GLM,
    "glm4v": _GLM,
    "glm4v_moe": {
        **_GLM,
        "classes": {
            "image_processor": "Glm4vImageProcessor",
            "video_processor": "Glm4vVideoProcessor",
        }
    },
    "glm_ocr": {
        "processor": "Glm46VProcessor",
        "classes": {
            "image_processor": "Glm46VImageProcessor",
            "video_processor": "Glm46VVideoProcessor",
        },
    },
    "granite4_vision": {
        "settings": {
            "patch_size": 16, "vision_feature_select_strategy": "full", "downsample_rate": "1/2",
        },
        "config": {"downsample_rate": "1/2"},
    },
    "llama4": {
        "image_processor": {"size": {"height": 336, "width": 336}},
        "config": {"vision_config": {"image_size": 336, "patch_size": 14}},
    },
    "llava": _LLAVA,
    "llava_next": _LLAVA,
    "llava_next_video": {**_LLAVA, "video_processor": _CROP},
    "llava_onevision": {
        "settings": {"num_image_tokens": 729, "vision_feature_select_strategy": "full"}
    },
    "minimax_m3_vl": {
        "tokens": [
            f"]<]{name}[>["
            for name in (
                "image", "video", "start of image", "end of image", "start of video", "end of video"
            )
        ]
    },
    "mistral3": {"settings": {"patch_size": 14, "spatial_merge_size": 2}},
    "fast_vlm": {
        **_LLAVA,
        "processor": "LlavaProcessor",
        "classes": {"image_processor": "CLIPImageProcessor"},
    },
    "glmga": {
        **_GLM,
        "processor": "Glm46VProcessor",
        "classes": {
            "image_processor": "Glm46VImageProcessor",
            "video_processor": "Glm46VVideoProcessor",
        },
    },
    "paddleocr_vl": {"named": {"image_token": "<|IMAGE_PLACEHOLDER|>"}},
    "perception_lm": {"settings": {"patch_size": 14, "pooling_ratio": 2}},
    "qwen3_5": _QWEN,
    "qwen3_5_moe": _QWEN,
    "qwen3_vl": _QWEN,
    "qwen3_vl_moe": {
        **_QWEN,
        "classes": {
            "image_processor": "Qwen2VLImageProcessor",
            "video_processor": "Qwen3VLVideoProcessor",
        },
    },
    "qwen4_exp": _QWEN,
    "step3p7": {
        "tokens": ["<im_start>", "<im_end>", "<patch_start>", "<patch_end>", "<patch_newline>"]
    },
    "vipllava": _LLAVA,
}  # fmt: skip


def types() -> list[str]:
    """Return the model types of transformers that have a processor and generate text."""
    known = {*PROCESSOR_MAPPING_NAMES, *(name for name in RECIPES if "processor" in RECIPES[name])}
    return sorted(filter(_architecture, known))


def write(model_type: str, folder: Path) -> None:
    """Write the directory of a model; what transformers refuses is raised."""
    recipe = RECIPES.get(model_type, {})
    named = dict(recipe.get("named", {}))
    while True:
        try:
            _write(model_type, folder, {**recipe, "named": named})
        except (AttributeError, ValueError) as error:
            asked = re.search(r"(?:no attribute '?|attribute ')([a-z_]+_token)", str(error))
            if asked is None or asked[1] in named:
                raise
            named[asked[1]] = _NAMES.get(asked[1], f"<|{asked[1]}|>")
        else:
            return


def _write(model_type: str, folder: Path, recipe: dict[str, Any]) -> None:
    kind = getattr(transformers, recipe.get("processor") or PROCESSOR_MAPPING_NAMES[model_type])
    tokens = [*recipe.get("tokens", ()), *recipe["named"].values(), *_special_tokens(kind)]
    tokenizer = _tokenizer(tokens, recipe["named"])
    parts = {
        name: tokenizer if name == "tokenizer" else _part(name, model_type, recipe)
        for name in kind.get_attributes()
    }
    processor = kind(**parts, **recipe.get("settings", {}))
    folder.mkdir(parents=True)
    processor.save_pretrained(folder)
    config = transformers.AutoConfig.for_model(model_type, **recipe.get("config", {}))
    config.architectures = [_architecture(model_type)]
    ids = dict(recipe.get("ids", {}))
    for modality in ("image", "video", "audio"):
        token = getattr(processor, f"{modality}_token", None)
        if isinstance(token, str):
            names = (f"{modality}_token_id", f"{modality}_token_index")
            ids |= {name: token for name in names if hasattr(config, name)}
    for name, token in ids.items():
        setattr(config, name, tokenizer.convert_tokens_to_ids(token))
    config.save_pretrained(folder)


def _architecture(model_type: str) -> str:
    for mapping in _ARCHITECTURES:
        found = getattr(modeling_auto, mapping, {}).get(model_type)
        if found:
            return found if isinstance(found, str) else found[0]
    return ""


def _part(name: str, model_type: str, recipe: dict[str, Any]) -> Any:
    found: Any = recipe.get("classes", {}).get(name) or _PARTS[name].get(model_type)
    if isinstance(found, dict):
        found = found.get("torchvision") or found.get("pil")
    if not found:
        raise ValueError(f"transformers has no {name} for it")
    return getattr(transformers, found)(**recipe.get(name, {}))


def _special_tokens(kind: type) -> list[str]:
    """Return the texts in the program of a processor that look like special tokens."""
    source = Path(inspect.getfile(kind)).read_text()
    return re.findall(r"""["'`](<[^<>"'`\s{}]{1,40}>|\[[A-Z_]{2,20}\])["'`]""", source)


def _tokenizer(tokens: list[str], named: dict[str, str]) -> Any:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    newlines = ["\n" * count for count in range(1, 9)]
    all_tokens = [
        "<s>",
        "</s>",
        "<pad>",
        "<unk>",
        *tokens,
        "<image>",
        "<video>",
        "<audio>",
        *newlines,
    ]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in dict.fromkeys(all_tokens)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        extra_special_tokens=named,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=1 << 20,
    )
