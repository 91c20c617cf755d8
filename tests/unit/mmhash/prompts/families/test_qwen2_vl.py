import pytest

from mmhash.errors import MMHashError
from mmhash.prompts.families.qwen2_vl import Qwen2VL
from mmhash.prompts.items import MediaSize
from mmhash.prompts.section import UnknownModelError
from tests.support.family_files import QWEN_TOKENS, read_files

IMAGE = {"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 1_003_520}


def family(engine: str = "", **settings: object) -> Qwen2VL:
    files = read_files(QWEN_TOKENS, {}, preprocessor_config=IMAGE | settings)
    return Qwen2VL(files, engine)


def test_the_options_of_a_request_change_the_number() -> None:
    expansion = family().expand("image", MediaSize(1280, 720), {"max_pixels": 200_704})
    assert expansion.grid == (1, 24, 42)


def test_the_frames_of_a_video_share_pixels_if_the_model_says_so() -> None:
    size = MediaSize(1280, 720, frames=768)
    (free, capped) = (
        len(family(cap_pixels_per_frame=value).expand("video", size, {}).token_ids)
        for value in (False, True)
    )
    assert capped <= 128_000 * 0.9 < free


def test_no_video_for_sglang_which_resizes_frames_first() -> None:
    assert family("sglang").placeholders.keys() == {"image"}


@pytest.mark.parametrize(
    "settings",
    [{"image_processor_type": "AnotherProcessor"}, {"do_resize": False}, {"patch_size": "14"}],
)
def test_unknown_settings(settings: dict[str, object]) -> None:
    with pytest.raises(UnknownModelError):
        family(**settings)


@pytest.mark.parametrize(
    "options",
    [{"patch_size": 7}, {"min_pixels": 10**15}, {"size": {"longest_edge": 9}}, {"max_pixels": 0}],
)
def test_options_that_cannot_be_planned(options: dict[str, object]) -> None:
    with pytest.raises(MMHashError):
        family().expand("image", MediaSize(640, 480), options)


def test_a_video_without_a_number_of_frames() -> None:
    with pytest.raises(MMHashError):
        family().expand("video", MediaSize(640, 480), {})
