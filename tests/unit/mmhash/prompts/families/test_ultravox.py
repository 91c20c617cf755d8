import pytest

from mmhash.errors import MMHashError
from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.ultravox import Ultravox
from mmhash.prompts.files import UnknownModelError
from tests.unit.mmhash.prompts.families.model_files import model_files

CONFIG = {"audio_token_index": 128_009, "stack_factor": 8}


def family(engine: str = "vllm", **config: object) -> Ultravox:
    return Ultravox(model_files("ultravox", engine, config=CONFIG | config))


@pytest.mark.parametrize(
    ("samples", "tokens"),
    [
        (1, 1),
        (160 * 16, 1),
        (160 * 16 + 1, 2),
        (480_000, 188),
        (480_001, 189),  # a second window
        (960_000, 376),
    ],
)
def test_windows_are_rounded_up_each(samples: int, tokens: int) -> None:
    expansion = family().expand("audio", MediaSize(samples=samples), {})
    assert expansion.token_ids == [128_009] * tokens


def test_unknown_settings_and_engines() -> None:
    with pytest.raises(UnknownModelError, match="sglang"):
        family("sglang")
    with pytest.raises(UnknownModelError, match="audio_token_index"):
        family(audio_token_index=None)


@pytest.mark.parametrize("samples", [0, 10**15])
def test_clips_that_cannot_be_planned(samples: int) -> None:
    with pytest.raises(MMHashError):
        family().expand("audio", MediaSize(samples=samples), {})
