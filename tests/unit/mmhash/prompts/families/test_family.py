from pathlib import Path

import pytest

from mmhash.prompts.families import registry
from mmhash.prompts.files import UnknownModelError
from tests.support.family_files import write_files

# SGLang expands these by rules that are not the family's, or does not serve them.
OTHER_IN_SGLANG = (
    "idefics3", "internvl", "internvl_chat", "llava", "llava_next", "llava_onevision",
    "phi4_multimodal", "phi4mm", "smolvlm", "ultravox",
)  # fmt: skip


@pytest.mark.parametrize("kind", OTHER_IN_SGLANG)
def test_a_family_is_refused_for_an_engine_with_other_rules(kind: str, tmp_path: Path) -> None:
    config = {"model_type": kind, "vision_config": {"model_type": "clip_vision_model"}}
    files = write_files(tmp_path, (), config, engine="sglang")
    with pytest.raises(UnknownModelError, match=f"prompts of {kind} are not planned for sglang"):
        registry.find(files)


def test_other_families_are_for_both_engines() -> None:
    both = {kind for one in registry.FAMILIES for kind in one.model_types if len(one.engines) == 2}
    # Pixtral shares LLaVA's type: its vision tower tells them apart.
    assert both.isdisjoint(set(OTHER_IN_SGLANG) - {"llava"})
    assert both >= {"gemma3", "glm4v", "llama4", "mistral3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"}
