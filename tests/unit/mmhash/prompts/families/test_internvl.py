"""InternVL in transformers' form."""

from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.internvl import InternVL
from mmhash.prompts.files import UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, write_files

TOKENS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
}


def _load(folder: Path, **image: Any) -> InternVL:
    image = {"size": {"height": 448, "width": 448}, **image}
    files = write_files(
        folder,
        tuple(TOKENS.values()),
        {"model_type": "internvl", "image_token_id": FIRST_SPECIAL + 2},
        preprocessor_config=image,
        tokenizer_config=TOKENS,
    )
    return InternVL(files)


@pytest.mark.parametrize(
    ("width", "height", "options", "tiles"),
    [
        (448, 448, {}, 1),
        (896, 448, {}, 3),
        (4000, 3000, {}, 13),
        (4000, 3000, {"max_patches": 4}, 5),
        (448, 448, {"min_patches": 2}, 5),
        (4000, 3000, {"crop_to_patches": False}, 1),
    ],
)
def test_tokens(
    tmp_path: Path, width: int, height: int, options: dict[str, Any], tiles: int
) -> None:
    expansion = _load(tmp_path).expand("image", MediaSize(width, height), options)
    start = FIRST_SPECIAL
    assert expansion.token_ids == [start, *[start + 2] * 256 * tiles, start + 1]
    assert expansion.embeds == [(1, 256 * tiles + 1)]


def test_the_processor_overrides_the_file(tmp_path: Path) -> None:
    family = _load(tmp_path, crop_to_patches=False, max_patches=4)
    assert len(family.expand("image", MediaSize(4000, 3000), {}).token_ids) == 5 * 256 + 2


@pytest.mark.parametrize(
    "image", [{"max_patches": 10**9}, {"size": {"shortest_edge": 448}}, {"do_resize": False}]
)
def test_other_settings_are_refused(tmp_path: Path, image: dict[str, Any]) -> None:
    with pytest.raises(UnknownModelError):
        _load(tmp_path, **image)


def test_options_have_bounds(tmp_path: Path) -> None:
    with pytest.raises(InputValueError, match="max_patches"):
        _load(tmp_path).expand("image", MediaSize(9, 9), {"max_patches": 10**9})
