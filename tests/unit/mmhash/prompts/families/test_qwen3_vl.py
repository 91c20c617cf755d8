import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families.qwen3_vl import Qwen3VL, frame_times, step_seconds
from mmhash.prompts.items import MediaSize
from mmhash.prompts.section import UnknownModelError
from tests.support.family_files import QWEN_TOKENS, read_files

VIDEO = {"video_processor_type": "Qwen3VLVideoProcessor", "patch_size": 16}


def family(engine: str = "", release: str = "", **settings: object) -> Qwen3VL:
    files = read_files(
        QWEN_TOKENS,
        {},
        preprocessor_config={"patch_size": 16},
        video_preprocessor_config=VIDEO | settings,
    )
    return Qwen3VL(files, engine, release)


def test_times_are_given_or_follow_from_the_rate() -> None:
    assert frame_times(MediaSize(frames=3, fps=2.0)) == [0.0, 0.5, 1.0]
    assert frame_times(MediaSize(frames=1, times=(7.0,))) == [7.0]
    assert step_seconds(MediaSize(frames=3, fps=1.0), 2) == [0.5, 2.0]
    for size in (
        MediaSize(frames=3),
        MediaSize(frames=3, fps=0.0),
        MediaSize(frames=3, times=(1.0,)),
    ):
        with pytest.raises(InputValueError):
            frame_times(size)


@pytest.mark.parametrize(
    ("engine", "release", "takes"),
    [
        ("", "", True),
        ("vllm", "0.32.0", True),
        ("vllm", "0.30.0", True),
        ("vllm", "0.28.0", False),  # its prompt depends on the release of transformers
        ("sglang", "0.5.23", False),
    ],
)
def test_engines_whose_videos_are_planned(engine: str, release: str, takes: bool) -> None:
    assert ("video" in family(engine, release).placeholders) == takes


def test_vllm_takes_the_older_names_of_limits() -> None:
    size = MediaSize(640, 640, frames=4, fps=1.0)
    options = {"max_pixels": 262_144}
    assert family("vllm", "0.32.0").expand("video", size, options).grid == (2, 16, 16)
    with pytest.raises(InputValueError, match="max_pixels"):
        family().expand("video", size, options)


def test_another_video_processor_is_refused() -> None:
    with pytest.raises(UnknownModelError, match="video_processor_type"):
        family(video_processor_type="Qwen2VLVideoProcessor")
