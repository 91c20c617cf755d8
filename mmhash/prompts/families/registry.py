"""The family of each model."""

from collections.abc import Mapping

from mmhash.prompts.families.family import Family
from mmhash.prompts.families.internvl import InternVLChat
from mmhash.prompts.families.processed import Processed
from mmhash.prompts.families.qwen2_vl import Qwen2VL
from mmhash.prompts.families.qwen3_vl import Qwen3VL
from mmhash.prompts.families.text_only import TextOnly
from mmhash.prompts.files import ModelFiles

BUILT_IN: Mapping[str, type[Family]] = {
    "qwen2_5_vl": Qwen2VL,
    "qwen2_vl": Qwen2VL,
    "qwen3_vl": Qwen3VL,
    "qwen3_vl_moe": Qwen3VL,
    "internvl_chat": InternVLChat,
}
"""The built-in families by the `model_type` of config.json."""


def find(files: ModelFiles, engine: str = "", release: str = "") -> Family:
    """Return the model's built-in family, or the family of text-only or of all other models."""
    other = Processed if files.takes_media else TextOnly
    return BUILT_IN.get(files.model_type, other)(files, engine, release)
