"""The list of model families."""

from mmhash.prompts.families.family import Family
from mmhash.prompts.families.internvl import InternVLChat
from mmhash.prompts.families.processed import Processed
from mmhash.prompts.families.qwen2_vl import Qwen2VL
from mmhash.prompts.families.qwen3_vl import Qwen3VL
from mmhash.prompts.files import ModelFiles

FAMILIES: tuple[type[Family], ...] = (Qwen2VL, Qwen3VL, InternVLChat)


def find(files: ModelFiles, engine: str = "", release: str = "") -> Family:
    """Return a model's family with its settings, or a family that asks the model's processor."""
    for family in FAMILIES:
        if files.model_type in family.model_types:
            return family(files, engine, release)
    return Processed(files, engine, release)
