import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families.family import MediaSize
from mmhash.prompts.families.qwen3_vl import Qwen3VL, frame_times, step_seconds
from mmhash.prompts.files import UnknownModelError
from tests.unit.mmhash.prompts.families.model_files import model_files, token_id

VIDEO = {"video_processor_type": "Qwen3VLVideoProcessor", "patch_size": 16}


def family(engine: str = "", release: str = "", **settings: object) -> Qwen3VL:
    files = model_files(
        "qwen3_vl",
        engine,
        release,
        image_processor={"patch_size": 16},
        video_processor=VIDEO | settings,
    )
    return Qwen3VL(files)


def test_each_step_of_a_video_begins_with_its_seconds() -> None:
    size = MediaSize(320, 320, frames=3, times=(0.0, 0.5, 1.5))
    expansion = family().expand("video", size, {})
    assert expansion.grid is not None
    count = expansion.grid[1] * expansion.grid[2] // 4
    start, pad, end = map(token_id, ("<|vision_start|>", "<|video_pad|>", "<|vision_end|>"))
    assert expansion.token_ids == [
        *b"<0.2 seconds>", start, *[pad] * count, end,
        *b"<1.5 seconds>", start, *[pad] * count, end,
    ]  # fmt: skip
    assert expansion.embeds is not None
    for first, last in expansion.embeds:
        assert expansion.token_ids[first:last] == [pad] * count


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


def test_the_limit_of_pixels_is_for_all_frames() -> None:
    short, long = (
        family().expand("video", MediaSize(1280, 720, frames=n, fps=1.0), {}).grid for n in (2, 64)
    )
    assert short is not None
    assert long is not None
    assert short[1] * short[2] > long[1] * long[2]


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
    assert ("video" in family(engine, release).placeholders()) == takes


def test_vllm_takes_the_older_names_of_limits() -> None:
    size = MediaSize(640, 640, frames=4, fps=1.0)
    options = {"max_pixels": 262_144}
    assert family("vllm", "0.32.0").expand("video", size, options).grid == (2, 16, 16)
    with pytest.raises(InputValueError, match="max_pixels"):
        family().expand("video", size, options)


def test_another_video_processor_is_refused() -> None:
    with pytest.raises(UnknownModelError, match="video_processor_type"):
        family(video_processor_type="Qwen2VLVideoProcessor")
