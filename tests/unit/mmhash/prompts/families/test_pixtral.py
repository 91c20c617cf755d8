"""Pixtral and Mistral 3."""

from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import MediaSize, Placeholder
from mmhash.prompts.families.pixtral import Mistral3, Pixtral, count_patches
from mmhash.prompts.files import Section, UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, write_files

TOKENS = ("[IMG]", "[IMG_BREAK]", "[IMG_END]")
IMAGE, BREAK, END = range(FIRST_SPECIAL, FIRST_SPECIAL + 3)
VISION = {"model_type": "pixtral", "image_size": 64, "patch_size": 16}


def _load(folder: Path, longest: int = 64, **processor: Any) -> Pixtral:
    files = write_files(
        folder,
        TOKENS,
        {"model_type": "llava", "vision_config": VISION, "image_token_index": IMAGE},
        preprocessor_config={"size": {"longest_edge": longest}},
        processor_config=processor,
    )
    return Pixtral(files)


def _load_mistral(folder: Path, **changes: Any) -> Mistral3:
    files = write_files(
        folder,
        TOKENS,
        {"model_type": "mistral3", "vision_config": VISION, "image_token_index": IMAGE} | changes,
        preprocessor_config={"size": {"longest_edge": 128}},
        processor_config={"patch_size": 16, "spatial_merge_size": 2},
    )
    return Mistral3(files)


def test_rows_end_with_a_token(tmp_path: Path) -> None:
    family = _load(tmp_path)
    expansion = family.expand("image", MediaSize(33, 20), {})
    row = [IMAGE] * 3
    assert expansion.token_ids == [*row, BREAK, *row, END]
    assert expansion.embeds == [(0, 3), (4, 7)]
    assert expansion.grid == (2, 3)
    assert family.placeholders() == {"image": Placeholder("[IMG]", "")}


def test_large_images_are_reduced() -> None:
    assert count_patches(MediaSize(1024, 1024), 1024, 16) == (64, 64)
    assert count_patches(MediaSize(4096, 1024), 1024, 16) == (16, 64)
    with pytest.raises(InputValueError, match="1 x 8192"):
        count_patches(MediaSize(1, 8192), 1024, 16)


def test_mistral_merges_patches_and_has_an_option(tmp_path: Path) -> None:
    family = _load_mistral(tmp_path)
    assert family.expand("image", MediaSize(500, 500), {}).grid == (4, 4)
    options = {"size": {"longest_edge": 64}}
    assert family.expand("image", MediaSize(500, 500), options).grid == (2, 2)


def test_pixtral_has_no_option(tmp_path: Path) -> None:
    with pytest.raises(InputValueError, match="size"):
        _load(tmp_path).expand("image", MediaSize(9, 9), {"size": {"longest_edge": 32}})


def test_files_that_disagree_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match="longest_edge"):
        _load(tmp_path, longest=128)
    with pytest.raises(UnknownModelError, match="patch_size"):
        _load(tmp_path, patch_size=14)
    with pytest.raises(UnknownModelError, match="spatial_merge_size"):
        _load_mistral(tmp_path, spatial_merge_size=4)


def test_families_are_chosen_by_the_tower() -> None:
    config = {"model_type": "llava", "vision_config": VISION}
    assert Pixtral.takes(Section("config.json", config))
    assert not Mistral3.takes(Section("config.json", config))
    assert not Pixtral.takes(Section("config.json", {"model_type": "llava"}))
