"""Writes tiny vision-language models with random weights, which the engines can load."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.live.tiny import COMMON, TINY, Tiny

RECIPE = 5
LORA = "tiny-lora"

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] in ('image', 'image_url') or 'image' in part or 'image_url' in part %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] in ('video', 'video_url') or 'video' in part %}"
    "<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# The running engines' template. It shows everything that they pass to it.
SHOWING_TEMPLATE = (
    "{% if nonce is defined %}{{ nonce }}{% endif %}"
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% if reasoning_effort is defined %}<|im_start|>effort {{ reasoning_effort }}\n{% endif %}"
    "{% if enable_thinking is defined %}<|im_start|>thinking {{ enable_thinking }}\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] in ('image', 'image_url') or 'image' in part or 'image_url' in part %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] in ('video', 'video_url') or 'video' in part %}"
    "<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}"
    "{% elif part['type'] == 'tool_reference' %}[{{ part['name'] }}]{% endif %}"
    "{% endfor %}{% endif %}"
    "{% for name, value in message | dictsort if name not in ('role', 'content') %}"
    "[{{ name }}={{ value | tojson }}]{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

PARTS_TEMPLATE = (
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE"
    "{% elif part['type'] == 'video' %}VIDEO"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

TEXTS_TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}{{ message['role'] | upper }}: {{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)

_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)


def write(name: str, folder: Path) -> None:
    """Write the model with this name. Its config.json comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    if name in TINY:
        _write_tiny(TINY[name], folder)
    else:
        {"qwen2_vl": _write_qwen2_vl}[name](folder)


def _write_tiny(tiny: Tiny, folder: Path) -> None:
    tokenizer = _make_tokenizer((*COMMON, *tiny.special))
    tokenizer.save(str(folder / "tokenizer.json"))
    ends = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 16384,
        **ends,
        **tiny.names,
    }
    if tiny.names:
        settings["extra_special_tokens"] = tiny.names
    _write(folder, "tokenizer_config.json", settings)
    template = TEXTS_TEMPLATE if tiny.template_of_texts else PARTS_TEMPLATE
    for kind in ("image", "video"):
        template = template.replace(kind.upper(), getattr(tiny, kind))
    (folder / "chat_template.jinja").write_text(template)
    for name, content in tiny.files.items():
        _write(folder, name, content)
    _write(folder, "config.json", tiny.config)


def _write_qwen2_vl(folder: Path) -> None:
    ids = _write_tokenizer(folder)
    pixels = {"min_pixels": 3136, "max_pixels": 200704}
    patches = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    image = {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2VLProcessor"}
    scale = {
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    _write(folder, "preprocessor_config.json", image | pixels | patches | scale)
    video = {"video_processor_type": "Qwen2VLVideoProcessor"}
    _write(folder, "video_preprocessor_config.json", video | pixels | patches)
    ends = {"eos_token_id": ids["<|im_end|>"], "pad_token_id": ids["<|endoftext|>"]}
    _write(folder, "generation_config.json", ends)
    text = {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "torch_dtype": "float32",
        "vocab_size": 320,
        "hidden_size": 128,  # two heads of 64, the smallest size of vLLM's kernel on the CPU
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        "vision_token_id": ids["<|vision_pad|>"],
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
    }
    vision = {
        "depth": 2,
        "embed_dim": 64,
        "hidden_size": 128,
        "mlp_ratio": 2,
        "num_heads": 4,
        "in_chans": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "spatial_patch_size": 14,
    }
    _write(folder, "config.json", text | {"vision_config": vision})


def write_lora(folder: Path) -> None:
    """Write an adapter for the tiny model's first projection."""
    folder.mkdir(exist_ok=True)
    name = "base_model.model.model.language_model.layers.0.self_attn.q_proj"
    generator = np.random.default_rng(0)
    weights = {
        f"{name}.lora_A.weight": generator.standard_normal((4, 128), np.float32),
        f"{name}.lora_B.weight": generator.standard_normal((128, 4), np.float32),
    }
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": ["q_proj"]}
    _write(folder, "adapter_config.json", config)


def _write_tokenizer(folder: Path) -> dict[str, int]:
    """Write a tokenizer of single bytes, and return the ids of its special tokens."""
    tokenizer = _make_tokenizer(_SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(
        folder,
        "tokenizer_config.json",
        {
            "tokenizer_class": "Qwen2TokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 4096,
            "additional_special_tokens": list(_SPECIAL),
            "chat_template": CHAT_TEMPLATE,
        },
    )
    ids: dict[str, int] = tokenizer.get_vocab()
    return {token: ids[token] for token in _SPECIAL}


def _make_tokenizer(special: tuple[str, ...]) -> Tokenizer:
    """Return a tokenizer of single bytes and of special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokens = [AddedToken(token, special=True, normalized=False) for token in special]
    tokenizer.add_special_tokens(tokens)
    return tokenizer


def _write(folder: Path, name: str, content: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(content, indent=1))
