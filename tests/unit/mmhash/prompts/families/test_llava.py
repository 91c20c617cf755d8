"""LLaVA 1.5."""

from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import MediaSize, Placeholder
from mmhash.prompts.families.llava import Llava
from mmhash.prompts.files import Section, UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, write_files

CONFIG = {
    "model_type": "llava",
    "image_token_index": FIRST_SPECIAL,
    "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14},
}


def _load(folder: Path, **processor: Any) -> Llava:
    return Llava(write_files(folder, ("<image>",), CONFIG, processor_config=processor))


def test_every_image_has_576_tokens(tmp_path: Path) -> None:
    family = _load(tmp_path)
    assert family.placeholders() == {"image": Placeholder("<image>", "<image>")}
    for size in (MediaSize(1, 1), MediaSize(8192, 3)):
        expansion = family.expand("image", size, {})
        assert expansion.token_ids == [FIRST_SPECIAL] * 576
        assert expansion.embeds is None


def test_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputValueError, match="crop_size"):
        _load(tmp_path).expand("image", MediaSize(9, 9), {"crop_size": {"height": 448}})


def test_files_that_disagree_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match="vision_feature_select_strategy"):
        _load(tmp_path, vision_feature_select_strategy="full")


def test_pixtral_is_another_family() -> None:
    assert Llava.takes(Section("config.json", CONFIG))
    vision = {"model_type": "pixtral"}
    config = {"model_type": "llava", "vision_config": vision}
    assert not Llava.takes(Section("config.json", config))
