"""LLaVA-NeXT."""

from pathlib import Path
from typing import Any

import pytest

from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.llava_next import LlavaNext, find_resolution
from mmhash.prompts.files import UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, write_files

PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]


def _load(folder: Path, pinpoints: Any = PINPOINTS, **image: Any) -> LlavaNext:
    config = {
        "model_type": "llava_next",
        "image_token_index": FIRST_SPECIAL,
        "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14},
        "image_grid_pinpoints": pinpoints,
    }
    return LlavaNext(write_files(folder, ("<image>",), config, preprocessor_config=image))


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (672, 672, 576 + 48 * 48 + 48),
        (672, 336, 576 + 24 * 48 + 24),
        # 36 of 48 rows are the image, and 12 are padding.
        (640, 480, 576 + 36 * 48 + 36),
        # No pixel is left of so thin an image: no column, and the ends of 24 rows.
        (1, 8192, 576 + 24),
    ],
)
def test_tokens(tmp_path: Path, width: int, height: int, tokens: int) -> None:
    expansion = _load(tmp_path).expand("image", MediaSize(width, height), {})
    assert expansion.token_ids == [FIRST_SPECIAL] * tokens


def test_first_of_equal_resolutions() -> None:
    assert find_resolution(MediaSize(8, 8), [(8, 16), (16, 8)]) == (8, 16)
    assert find_resolution(MediaSize(8, 8), [(8, 16), (8, 8)]) == (8, 8)


@pytest.mark.parametrize(
    "pinpoints", [None, [], [[336]], [[336, "672"]], [[335, 672]], [[336, 1 << 17]], [[336, 672.0]]]
)
def test_pinpoints_are_checked(tmp_path: Path, pinpoints: Any) -> None:
    with pytest.raises(UnknownModelError, match="image_grid_pinpoints"):
        _load(tmp_path, pinpoints)


def test_pinpoints_of_the_files_agree(tmp_path: Path) -> None:
    _load(tmp_path, image_grid_pinpoints=PINPOINTS)
    with pytest.raises(UnknownModelError, match="image_grid_pinpoints"):
        _load(tmp_path, image_grid_pinpoints=PINPOINTS[:2])
