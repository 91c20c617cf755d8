"""Refusals for models whose own processor is asked."""

from pathlib import Path

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts import MediaSize, Model, UnknownModelError
from mmhash.prompts.families import checked
from mmhash.prompts.section import Section
from tests.support import processed_models


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model.load(processed_models.write_paddleocr(tmp_path_factory.mktemp("paddle")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "release", "reason"),
    [("sglang", "0.5.23", "nobody has checked"), ("vllm", "0.31.0", "0.32 and newer")],
)
def test_an_engine_that_is_not_checked_has_no_plans(
    model: Model, engine: str, release: str, reason: str
) -> None:
    with pytest.raises(UnknownModelError, match=reason):
        model.family(engine, release)


@pytest.mark.slow
def test_the_operator_may_plan_for_any_engine(model: Model, tmp_path: Path) -> None:
    unchecked = Model.load(processed_models.write_paddleocr(tmp_path), unchecked=True)
    size = MediaSize(640, 360)
    expansion = unchecked.family("sglang", "0.5.23").expand("image", size, {})
    assert expansion == model.family("vllm", "0.32.0").expand("image", size, {})


@pytest.mark.slow
def test_options_and_modalities_that_are_not_checked_are_refused(model: Model) -> None:
    family = model.family("vllm", "0.32.0")
    with pytest.raises(InputValueError, match="min_pixels"):
        family.expand("image", MediaSize(640, 360), {"min_pixels": 1})
    assert family.placeholders.keys() == {"image"}
    with pytest.raises(InputValueError, match="absolute aspect ratio"):
        family.expand("image", MediaSize(8000, 1), {})


@pytest.mark.slow
def test_a_long_clip_is_cut_off_only_where_vllm_cuts_it_off(tmp_path: Path) -> None:
    folder = processed_models.write_qwen2_audio(tmp_path)
    for unchecked, tokens in ((False, 750), (True, 937)):
        family = Model.load(folder, unchecked=unchecked).family("vllm", "0.32.0")
        expansion = family.expand("audio", MediaSize(samples=600_000), {})
        assert len(expansion.token_ids) == tokens


def test_sglang_expands_some_types_as_their_processor_does() -> None:
    assert checked.texts("pixtral", "sglang", "0.5.23").keys() == {"image"}
    with pytest.raises(UnknownModelError, match="nobody has checked"):
        checked.texts("llava", "sglang", "0.5.23")


def test_the_vision_tower_tells_pixtral_and_llava_apart() -> None:
    for tower, kind in (("pixtral", "pixtral"), ("clip_vision_model", "llava")):
        config = {"model_type": "llava", "vision_config": {"model_type": tower}}
        assert checked.kind_of(Section("config.json", config)) == kind


@pytest.mark.parametrize(
    ("kind", "width", "height", "is_alike"),
    [
        ("step3p7", 727, 300, True),
        ("step3p7", 300, 728, False),
        ("step3p7", 10, 32, False),
        ("step3p7", 10, 33, True),
        ("step3p7", 1, 728, False),
        ("step3p7", 8000, 1, True),
        ("emu3", 77, 3, False),
        ("minimax_m3_vl", 27, 500, False),
        ("paddleocr_vl", 1, 1, True),
    ],
)
def test_sizes_that_vllm_counts_otherwise_are_known(
    kind: str, width: int, height: int, is_alike: bool
) -> None:
    assert checked.is_counted_alike(kind, width, height) is is_alike
