"""Idefics3 and SmolVLM."""

from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.idefics3 import Idefics3, SmolVLM, count_tiles, resize
from mmhash.prompts.files import UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, write_files

TOKENS = ("<fake_token_around_image>", "<image>", "<global-img>")
FAKE, IMAGE, WHOLE = range(FIRST_SPECIAL, FIRST_SPECIAL + 3)


def _load(folder: Path, **image: Any) -> Idefics3:
    settings = {"size": {"longest_edge": 728}, "max_image_size": {"longest_edge": 364}, **image}
    files = write_files(
        folder,
        TOKENS,
        {"model_type": "idefics3", "image_token_id": IMAGE},
        preprocessor_config=settings,
        processor_config={"image_seq_len": 2},
    )
    return Idefics3(files)


def test_tiles_and_the_whole_image(tmp_path: Path) -> None:
    family = _load(tmp_path)
    encode = family.files.encode
    expansion = family.expand("image", MediaSize(1000, 500), {})
    assert expansion.token_ids == [
        *(FAKE, *encode("<row_1_col_1>"), IMAGE, IMAGE),
        *(FAKE, *encode("<row_1_col_2>"), IMAGE, IMAGE),
        *(*encode("\n\n"), FAKE, WHOLE, IMAGE, IMAGE, FAKE),
    ]
    assert expansion.embeds is not None
    assert [end - start for start, end in expansion.embeds] == [2, 2, 2]


@pytest.mark.parametrize(
    "options", [{"do_image_splitting": False}, {"size": {"longest_edge": 364}}]
)
def test_one_tile(tmp_path: Path, options: dict[str, Any]) -> None:
    expansion = _load(tmp_path).expand("image", MediaSize(1000, 500), options)
    assert expansion.token_ids == [FAKE, WHOLE, IMAGE, IMAGE, FAKE]


def test_sizes() -> None:
    # Small images grow, and the shorter side becomes even.
    assert resize(100, 200, 1456) == (728, 1456)
    assert resize(1, 8192, 1456) == (1, 1456)
    assert resize(3, 1000, 1456) == (4, 1456)
    assert resize(8000, 4000, 9000) == (4096, 2048)
    assert count_tiles(MediaSize(1456, 1456), 1456, 364) == (4, 4)
    assert count_tiles(MediaSize(4000, 3000), 1456, 364) == (3, 4)


def test_tiles_that_vllm_counts_otherwise_are_refused() -> None:
    # The processor enlarges 1000 to three tiles of 364, and the shorter side with it.
    with pytest.raises(InputValueError, match=r"2 x 3 tiles in .* makes 3 x 3"):
        count_tiles(MediaSize(1000, 700), 1000, 364)


def test_smolvlm_names_its_tokens(tmp_path: Path) -> None:
    files = write_files(
        tmp_path,
        ("<f>", "<i>", "<g>"),
        {"model_type": "smolvlm", "image_token_id": IMAGE},
        preprocessor_config={
            "size": {"longest_edge": 512},
            "max_image_size": {"longest_edge": 512},
        },
        processor_config={"image_seq_len": 1},
        tokenizer_config={
            "fake_image_token": "<f>",
            "image_token": "<i>",
            "global_image_token": "<g>",
        },
    )
    expansion = SmolVLM(files).expand("image", MediaSize(9, 9), {})
    assert expansion.token_ids == [FAKE, WHOLE, IMAGE, FAKE]


@pytest.mark.parametrize(
    "image", [{"size": {"height": 364, "width": 364}}, {"do_resize": False}, {"max_image_size": {}}]
)
def test_other_settings_are_refused(tmp_path: Path, image: dict[str, Any]) -> None:
    with pytest.raises(UnknownModelError):
        _load(tmp_path, **image)


def test_too_many_tiles_are_refused() -> None:
    with pytest.raises(UnknownModelError, match="more than"):
        count_tiles(MediaSize(4096, 4096), 4096, 16)
