import pytest

from mmhash.errors import InputValueError, LimitError
from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.qwen2_audio import Qwen2Audio
from mmhash.prompts.files import UnknownModelError
from tests.unit.mmhash.prompts.families.model_files import model_files

EXTRACTOR = {"feature_extractor_type": "WhisperFeatureExtractor"}


def count(samples: int, **settings: object) -> int:
    family = Qwen2Audio(model_files("qwen2_audio", audio_processor=EXTRACTOR | settings))
    return len(family.expand("audio", MediaSize(samples=samples), {}).token_ids)


def test_a_token_stands_for_four_steps_and_a_long_clip_is_cut() -> None:
    # The first three as transformers 5.23 counts them.
    assert count(382_447) == 598
    assert count(90_240) == 141
    assert count(440_320) == 688
    assert count(480_000) == count(10**9) == 750


@pytest.mark.parametrize("samples", [0, 1, 320])
def test_too_short_clips_are_refused(samples: int) -> None:
    with pytest.raises(InputValueError, match="no clip"):
        count(samples)


def test_the_window_is_the_models() -> None:
    assert count(480_000, chunk_length=10) == 250


def test_too_many_tokens_are_refused_before_they_are_made() -> None:
    with pytest.raises(LimitError, match="an item has 2500000000 tokens"):
        count(10**15, chunk_length=10**12 // 16_000, hop_length=100)


@pytest.mark.parametrize(
    "settings", [{"hop_length": 0}, {"feature_extractor_type": "AnotherExtractor"}]
)
def test_unknown_settings(settings: dict[str, object]) -> None:
    with pytest.raises(UnknownModelError):
        count(1000, **settings)
