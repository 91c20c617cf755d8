"""LLaVA-OneVision."""

from pathlib import Path
from typing import Any

import pytest

from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.llava_onevision import LlavaOnevision
from mmhash.prompts.files import UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, write_files


def _load(folder: Path, **processor: Any) -> LlavaOnevision:
    config = {
        "model_type": "llava_onevision",
        "image_token_index": FIRST_SPECIAL,
        "vision_config": {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14},
        "image_grid_pinpoints": [[384 * i, 384 * j] for i in range(1, 7) for j in range(1, 7)],
    }
    files = write_files(folder, ("<image>",), config, processor_config=processor)
    return LlavaOnevision(files)


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (384, 384, 729 + 27 * 27 + 27),
        (1152, 1152, 729 + 81 * 81 + 81),
        # 162 rows of 162 are reduced to nine tiles.
        (2304, 2304, 729 + 81 * 81 + 81),
    ],
)
def test_tokens(tmp_path: Path, width: int, height: int, tokens: int) -> None:
    expansion = _load(tmp_path).expand("image", MediaSize(width, height), {})
    assert expansion.token_ids == [FIRST_SPECIAL] * tokens


@pytest.mark.parametrize(
    "processor", [{"vision_aspect_ratio": "anyres_max_4"}, {"num_image_tokens": 576}]
)
def test_other_settings_are_refused(tmp_path: Path, processor: dict[str, Any]) -> None:
    with pytest.raises(UnknownModelError, match=next(iter(processor))):
        _load(tmp_path, **processor)
