"""Llama 4."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.llama4 import Llama4, choose_canvas, list_canvases
from mmhash.prompts.files import UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, write_files

TOKENS = (
    "<|image|>",
    "<|patch|>",
    "<|image_start|>",
    "<|image_end|>",
    "<|tile_x_separator|>",
    "<|tile_y_separator|>",
)
IMAGE, PATCH, START, END, NEXT, NEXT_ROW = range(FIRST_SPECIAL, FIRST_SPECIAL + 6)


def _load(folder: Path, **image: Any) -> Llama4:
    files = write_files(
        folder,
        TOKENS,
        {"model_type": "llama4", "vision_config": {"image_size": 336, "patch_size": 14}},
        preprocessor_config={"size": {"height": 336, "width": 336}, **image},
    )
    return Llama4(files)


def test_sglang_has_an_item_for_each_tile_so_takes_no_hash(tmp_path: Path) -> None:
    files = _load(tmp_path).files
    assert Llama4(files).takes_hashes()
    assert not Llama4(replace(files, engine="sglang", release="0.5.23")).takes_hashes()


def test_one_tile(tmp_path: Path) -> None:
    expansion = _load(tmp_path).expand("image", MediaSize(336, 336), {})
    assert expansion.token_ids == [START, IMAGE, *[PATCH] * 144, END]
    assert expansion.embeds == [(2, 146)]


def test_tiles_and_the_whole_image(tmp_path: Path) -> None:
    expansion = _load(tmp_path).expand("image", MediaSize(672, 672), {})
    tile = [PATCH] * 144
    row = [*tile, NEXT, *tile, NEXT_ROW]
    assert expansion.token_ids == [START, *row, *row, IMAGE, *tile, END]
    with pytest.raises(InputValueError, match="max_patches"):
        _load(tmp_path).expand("image", MediaSize(672, 672), {"max_patches": 4})


@pytest.mark.parametrize(
    ("width", "height", "is_maximal", "canvas"),
    [
        (300, 300, False, (1, 1)),
        (300, 300, True, (4, 4)),
        (337, 336, False, (1, 2)),
        (8192, 8192, False, (4, 4)),
        (8192, 1, False, (1, 16)),
        (1, 8192, False, (16, 1)),
    ],
)
def test_canvas(width: int, height: int, is_maximal: bool, canvas: tuple[int, int]) -> None:
    assert choose_canvas(MediaSize(width, height), 16, 336, is_maximal) == canvas


def test_canvases_are_by_shape() -> None:
    assert list_canvases(4).tolist() == [
        [1, 4],
        [2, 2],
        [1, 1],
        [4, 1],
        [1, 3],
        [3, 1],
        [1, 2],
        [2, 1],
    ]


@pytest.mark.parametrize("image", [{"max_patches": 10**6}, {"size": {"height": 448, "width": 448}}])
def test_other_settings_are_refused(tmp_path: Path, image: dict[str, Any]) -> None:
    with pytest.raises(UnknownModelError):
        _load(tmp_path, **image)
