"""The model families that mmhash knows: one line each."""

from mmhash.prompts.families.family import Family
from mmhash.prompts.families.qwen2_vl import Qwen2VL
from mmhash.prompts.files import ModelFiles, UnknownModelError

FAMILIES: tuple[type[Family], ...] = (
    Qwen2VL,
)  # fmt: skip


def find(files: ModelFiles) -> Family:
    """Return the family of a model with its settings; another model is an UnknownModelError."""
    for family in FAMILIES:
        if family.takes(files.config):
            return family(files)
    name = str(files.config.values.get("model_type"))[:60]
    raise UnknownModelError(f"no family takes model_type {name!r} of config.json")
