"""Model types that the engine is known to expand as the model's own processor does.

`make oracle` compares each type with the engine's own input processing. If a type or modality is
missing here, the engine expands it differently, or nobody has compared it. mmhash then plans the
model only if the operator marks it as unchecked.
"""

from collections.abc import Mapping

from mmhash.engines.releases import is_since
from mmhash.prompts.section import Section, UnknownModelError
from mmhash.requests import Modality

_Texts = Mapping[Modality, str]

_VLLM_SINCE = "0.32"

_QWEN: _Texts = {
    "image": "<|vision_start|><|image_pad|><|vision_end|>",
    "video": "<|vision_start|><|video_pad|><|vision_end|>",
}
_QWEN_AUDIO = "<|audio_start|><|audio_pad|><|audio_end|>"
_GLM: _Texts = {"image": "<|begin_of_image|><|image|><|end_of_image|>"}
_GEMMA: _Texts = {"image": "<image_soft_token>", "video": "<|video|>"}
_MINICPM: _Texts = {"image": "<|image_pad|>", "video": "<|video_pad|>"}

# vLLM's processor for transformers models adds no text to a prompt.
_NO_TEXT: _Texts = {"image": ""}

_VLLM: dict[str, _Texts] = {
    "aria": {"image": "<|fim_prefix|><|img|><|fim_suffix|>"},
    "aya_vision": _NO_TEXT,
    "cohere2_vision": _NO_TEXT,
    "cohere_compass": {"image": "<|VISION_START|><|IMAGE_PAD|><|VISION_END|>"},
    "cosmos3_edge": {"image": _QWEN["image"]},
    "deepseek_vl": _NO_TEXT,
    "deepseek_vl_hybrid": _NO_TEXT,
    "diffusion_gemma": _GEMMA,
    "emu3": _NO_TEXT,
    "exaone4_5": {
        "image": "<vision><|image_pad|></vision>",
        "video": "<vision><|video_pad|></vision>",
    },
    "fast_vlm": _NO_TEXT,
    "gemma3": {"image": "<start_of_image>"},
    "gemma3n": {"image": "<image_soft_token>", "audio": "<audio_soft_token>"},
    "gemma4": {**_GEMMA, "audio": "<audio_soft_token>"},
    "gemma4_unified": _GEMMA,
    "glm46v": _GLM,
    "glm4v": _GLM,
    "glm4v_moe": _GLM,
    "glm5_next": _GLM,
    "glm_ocr": _GLM,
    "glmga": _NO_TEXT,
    "glmasr": {"audio": "<|begin_of_audio|><|pad|><|end_of_audio|>"},
    "got_ocr2": _NO_TEXT,
    "granite4_vision": {"image": "<image>"},
    "hunyuan_vl": _NO_TEXT,
    "hyperclovax_vision_v2": {"image": "", "video": ""},
    "idefics3": {"image": "<image>"},
    "internvl": {"image": "<IMG_CONTEXT>"},
    "janus": _NO_TEXT,
    "kimi_k25": _NO_TEXT,
    "lfm2_vl": {"image": "<image>"},
    "lighton_ocr": _NO_TEXT,
    "llama4": {"image": "<|image|>"},
    "llava": {"image": "<image>"},
    "llava_next": {"image": "<image>"},
    "llava_next_video": {"video": "<video>"},
    "llava_onevision": {"image": "<image>"},
    "minicpmv4_6": _MINICPM,
    "minicpmv4_7": _MINICPM,
    "minimax_m3_vl": {"image": "]<]image[>["},
    "mistral3": _NO_TEXT,
    "ovis2": _NO_TEXT,
    "paddleocr_vl": {"image": "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>"},
    "perception_lm": _NO_TEXT,
    "pixtral": _NO_TEXT,
    "qwen2_audio": {"audio": "Audio {i}: <|audio_bos|><|AUDIO|><|audio_eos|>"},
    "qwen2_5_omni": {
        "image": "<|vision_start|><|IMAGE|><|vision_end|>",
        "video": "<|vision_start|><|VIDEO|><|vision_end|>",
        "audio": "Audio {i}: <|audio_bos|><|AUDIO|><|audio_eos|>",
    },
    "qwen3_5": _QWEN,
    "qwen3_5_moe": _QWEN,
    "qwen3_asr": {"audio": _QWEN_AUDIO},
    "qwen3_omni_moe": {**_QWEN, "audio": _QWEN_AUDIO},
    "qwen4_exp": _QWEN,
    "smolvlm": {"image": "<image>"},
    "step3p7": {"image": "<im_patch>"},
    "t5gemma2": _NO_TEXT,
    "video_llama_3": _NO_TEXT,
    "vipllava": _NO_TEXT,
    "video_llava": _NO_TEXT,
}
"""The text that vLLM writes for an item if the template takes texts only."""

# SGLang writes no text for an item: its template places all of them.
_SGLANG: dict[str, _Texts] = dict.fromkeys(
    ("gemma3", "glm46v", "glm4v", "glm4v_moe", "mistral3", "pixtral"), _NO_TEXT
)

# The side below which vLLM and the processor enlarge an image differently.
_LEAST_SIDES = {"cosmos3_edge": 32, "minimax_m3_vl": 28}

PADDED_CLIPS = frozenset({"qwen3_omni_moe"})
"""Types whose clips vLLM pads to whole steps of the spectrogram."""

CUT_CLIPS = frozenset({"gemma4", "qwen2_audio"})
"""Types whose clips have no tokens after 30 seconds in vLLM."""

MERGED = frozenset({"gemma3", "gemma3n"})
"""Types whose newlines around items the engine merges with others."""

NUMBERED = frozenset({"minicpmv4_6", "minicpmv4_7"})
"""Types whose prompts number the items."""


def kind_of(config: Section) -> str:
    """Return the `model_type`, or `pixtral` for a Pixtral, whose `model_type` is LLaVA's."""
    kind = str(config.values.get("model_type"))[:60]
    tower = config.section("vision_config").values.get("model_type")
    return "pixtral" if (kind, tower) == ("llava", "pixtral") else kind


def texts(model_type: str, engine: str, release: str) -> _Texts:
    """Return the texts of the checked modalities. Raise UnknownModelError if there are none."""
    found = (_SGLANG if engine == "sglang" else _VLLM).get(model_type)
    if found is None:
        raise UnknownModelError(
            f"nobody has checked that {engine or 'an engine'} counts tokens as the processor of"
            f" {model_type!r} does: mark the model as unchecked to plan it anyway"
        )
    if engine == "vllm" and not is_since(release, _VLLM_SINCE):
        raise UnknownModelError(f"mmhash plans {model_type!r} for vLLM {_VLLM_SINCE} and newer")
    return found


def is_counted_alike(model_type: str, width: int, height: int) -> bool:
    """Return False for an image that vLLM and the model's processor count differently."""
    long, short = max(width, height), min(width, height)
    if model_type == "emu3":  # vLLM takes three rows for channels
        return height != 3
    if model_type != "step3p7":
        return short >= _LEAST_SIDES.get(model_type, 0)
    # vLLM and transformers differ at two borders: at a side of 728, and at a remainder of one fifth
    # of a window, which only one of them rounds up.
    if short < 32 and long > 4 * short:
        short = long
    if long > 3024:
        long, short = (int(side * (3024 / long)) for side in (long, short))
    return long != 728 and 5 * (long % short) != short
