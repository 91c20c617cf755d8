"""InternVL in OpenGVLab's form."""

from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import MediaSize, Placeholder
from mmhash.prompts.families.internvl_chat import InternVLChat
from mmhash.prompts.files import UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, write_files

CONFIG = {
    "model_type": "internvl_chat",
    "vision_config": {"image_size": 448, "patch_size": 14},
    "downsample_ratio": 0.5,
    "min_dynamic_patch": 1,
    "max_dynamic_patch": 12,
    "dynamic_image_size": True,
    "use_thumbnail": True,
}


def _load(folder: Path, **changes: Any) -> InternVLChat:
    return InternVLChat(write_files(folder, ("<img>", "</img>", "<IMG_CONTEXT>"), CONFIG | changes))


@pytest.mark.parametrize(
    ("width", "height", "options", "tiles"),
    [
        (448, 448, {}, 1),
        (896, 448, {}, 3),
        (896, 448, {"use_thumbnail": False}, 2),
        (4000, 3000, {"max_dynamic_patch": 4}, 5),
        (4000, 3000, {"dynamic_image_size": False}, 1),
    ],
)
def test_tokens(
    tmp_path: Path, width: int, height: int, options: dict[str, Any], tiles: int
) -> None:
    family = _load(tmp_path)
    assert family.placeholders() == {"image": Placeholder("<image>", "<image>")}
    expansion = family.expand("image", MediaSize(width, height), options)
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
def test_other_settings_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(UnknownModelError):
        _load(tmp_path, **changes)


def test_other_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputValueError, match="image_size"):
        _load(tmp_path).expand("image", MediaSize(9, 9), {"image_size": 224})
