"""The files of a model with a tokenizer of single bytes, for tests of one family."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from mmhash.prompts.files import ModelFiles
from mmhash.prompts.loading import read_directory
from tests.oracle import tokenizer


def write_files(
    folder: Path,
    special: tuple[str, ...],
    config: dict[str, Any],
    *,
    engine: str = "vllm",
    **files: dict[str, Any],
) -> ModelFiles:
    """Write a model's files, such as `preprocessor_config`, by name, and read them back."""
    tokenizer.write(folder, special)
    for name, content in {**files, "config": config}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return replace(read_directory(folder).files, engine=engine)


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
