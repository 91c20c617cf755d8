"""The files of a model with a tokenizer of single bytes, for tests of one family."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mmhash.prompts.files import ModelFiles
from mmhash.prompts.loading import read_directory
from tests.oracle import tokenizer


def write_files(
    folder: Path, special: tuple[str, ...], config: dict[str, Any], **files: dict[str, Any]
) -> ModelFiles:
    """Write a model's files, such as `preprocessor_config`, by name, and read them back."""
    tokenizer.write(folder, special)
    for name, content in {**files, "config": config}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return read_directory(folder)


def read_files(
    special: tuple[str, ...], config: dict[str, Any], **files: dict[str, Any]
) -> ModelFiles:
    """Return the files of a model whose directory no test needs."""
    with TemporaryDirectory() as folder:
        return write_files(Path(folder), special, config, **files)


QWEN_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")

FIRST_SPECIAL = 258
"""The id of the first special token: 256 bytes and two tokens of the tokenizer precede it."""

INTERNVL_CHAT: dict[str, Any] = {
    "model_type": "internvl_chat",
    "vision_config": {"image_size": 448, "patch_size": 14},
    "downsample_ratio": 0.5,
    "min_dynamic_patch": 1,
    "max_dynamic_patch": 12,
    "dynamic_image_size": True,
    "use_thumbnail": True,
}
"""The config.json of an InternVL in OpenGVLab's form, which SGLang expands by rules of its own."""
