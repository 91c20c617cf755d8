"""InternVL in OpenGVLab's form. transformers has no processor for it, so the oracle has none."""

from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families import registry
from mmhash.prompts.families.family import Family
from mmhash.prompts.items import MediaSize
from mmhash.prompts.section import UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, INTERNVL_CHAT, write_files


def load(folder: Path, **changes: Any) -> Family:
    tokens = ("<img>", "</img>", "<IMG_CONTEXT>")
    return registry.find(write_files(folder, tokens, INTERNVL_CHAT | changes))


@pytest.mark.parametrize(
    ("size", "options", "tiles"),
    [
        (MediaSize(448, 448), {}, 1),
        (MediaSize(896, 448), {}, 3),
        (MediaSize(896, 448), {"use_thumbnail": False}, 2),
        (MediaSize(4000, 3000), {"max_dynamic_patch": 4}, 5),
        (MediaSize(4000, 3000), {"dynamic_image_size": False}, 1),
    ],
)
def test_an_image_is_its_tiles_between_two_marks(
    tmp_path: Path, size: MediaSize, options: dict[str, Any], tiles: int
) -> None:
    expansion = load(tmp_path).expand("image", size, options)
    start = FIRST_SPECIAL
    assert expansion.token_ids == [start, *[start + 2] * 256 * tiles, start + 1]
    assert expansion.embeds == [(1, 256 * tiles + 1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"downsample_ratio": 0.0},
        {"downsample_ratio": float("nan")},
        {"downsample_ratio": 2.0},
        {"max_dynamic_patch": 10**9},
        {"use_thumbnail": "yes"},
        {"dynamic_image_size": None},
        {"vision_config": {"image_size": 448}},
    ],
)
def test_unknown_settings_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(UnknownModelError):
        load(tmp_path, **changes)


@pytest.mark.parametrize(
    "options", [{"other": 1}, {"images_kwargs": {"max_dynamic_patch": 1}}, {"max_dynamic_patch": 0}]
)
def test_unknown_options_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """vLLM reads `images_kwargs` in some models only."""
    with pytest.raises(InputValueError):
        load(tmp_path).expand("image", MediaSize(9, 9), options)


def test_sglang_tiles_by_other_rules(tmp_path: Path) -> None:
    files = write_files(tmp_path, (), {"model_type": "internvl_chat"})
    with pytest.raises(UnknownModelError, match="SGLang"):
        registry.find(files, "sglang")
