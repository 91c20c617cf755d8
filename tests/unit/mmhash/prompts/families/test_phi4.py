"""Phi-4 multimodal."""

from pathlib import Path
from typing import Any

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import MediaSize, Placeholder
from mmhash.prompts.families.phi4 import Phi4MM, Phi4Multimodal, count_features
from mmhash.prompts.files import UnknownModelError
from tests.support.family_files import FIRST_SPECIAL, write_files


def _load(folder: Path, **image: Any) -> Phi4Multimodal:
    files = write_files(
        folder,
        ("<|image|>",),
        {"model_type": "phi4_multimodal"},
        preprocessor_config=image,
        tokenizer_config={"image_token": "<|image|>"},
    )
    return Phi4Multimodal(files)


def test_tokens(tmp_path: Path) -> None:
    expansion = _load(tmp_path).expand("image", MediaSize(448, 448), {})
    assert expansion.token_ids == [FIRST_SPECIAL] * (256 + 16 + 1 + 256 + 16)
    assert expansion.embeds is None


@pytest.mark.parametrize(
    ("width", "height", "most", "features"),
    [
        (448, 448, 36, (16, 16)),
        (896, 448, 36, (16, 32)),
        # Three quarters of the height are the image.
        (640, 480, 1, (12, 16)),
        (8192, 8192, 36, (96, 96)),
    ],
)
def test_features(width: int, height: int, most: int, features: tuple[int, int]) -> None:
    assert count_features(MediaSize(width, height), most) == features


def test_thin_images_are_refused() -> None:
    with pytest.raises(InputValueError, match="1 x 8000"):
        count_features(MediaSize(1, 8000), 36)


def test_placeholders_of_microsofts_form_have_numbers(tmp_path: Path) -> None:
    files = write_files(tmp_path, ("<|endoftext10|>",), {"model_type": "phi4mm"})
    family = Phi4MM(files)
    assert family.placeholders() == {"image": Placeholder("<|image_{i}|>", "<|image_{i}|>")}
    assert set(family.expand("image", MediaSize(9, 9), {}).token_ids) == {FIRST_SPECIAL}


@pytest.mark.parametrize(
    "image",
    [{"dynamic_hd": 10**6}, {"size": {"height": 384, "width": 384}}, {"patch_size": 16}],
)
def test_other_settings_are_refused(tmp_path: Path, image: dict[str, Any]) -> None:
    with pytest.raises(UnknownModelError):
        _load(tmp_path, **image)
