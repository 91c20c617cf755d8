"""The tokens of a vision tower."""

from typing import Any

import pytest

from mmhash.prompts.families.towers import Tower, read_tower
from mmhash.prompts.files import Section, UnknownModelError


def _read(strategy: str, **vision: Any) -> Tower:
    return read_tower(Section("config.json", {"vision_config": vision}), strategy)


def test_clip_has_a_class_token() -> None:
    sizes = {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14}
    assert _read("full", **sizes).tokens == 577
    assert _read("default", **sizes) == Tower(336, 24, 576)


def test_siglip_has_none() -> None:
    sizes = {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14}
    assert _read("full", **sizes) == Tower(384, 27, 729)
    assert _read("default", **sizes).tokens == 728
    assert _read("full", model_type="siglip_vision_model").tokens == (224 // 16) ** 2


@pytest.mark.parametrize(
    "vision",
    [
        {},
        {"model_type": "other"},
        {"model_type": "clip_vision_model", "image_size": 337},
        {"model_type": "clip_vision_model", "image_size": [336, 336]},
        {"model_type": "siglip_vision_model", "image_size": 8},
    ],
)
def test_other_towers_are_refused(vision: dict[str, Any]) -> None:
    with pytest.raises(UnknownModelError):
        _read("full", **vision)


def test_other_strategies_are_refused() -> None:
    with pytest.raises(UnknownModelError, match="vision_feature_select_strategy"):
        _read("class", model_type="clip_vision_model")
