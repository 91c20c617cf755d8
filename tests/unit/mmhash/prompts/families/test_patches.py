import pytest

from mmhash.errors import InputValueError, LimitError
from mmhash.prompts.families.patches import Patches, PixelRange, read_pixels
from mmhash.prompts.section import Section, UnknownModelError

LIMITS = PixelRange(3136, 1_003_520)
PATCHES = Patches(14, 2, 2, LIMITS)


def settings(**values: object) -> Section:
    return Section("a file", values)


def test_limits_come_from_size_or_from_the_older_names_which_precede() -> None:
    size = {"shortest_edge": 10, "longest_edge": 20}
    assert read_pixels(settings(), LIMITS) == LIMITS
    assert read_pixels(settings(size=size), LIMITS) == (10, 20)
    assert read_pixels(settings(size=size, max_pixels=30), LIMITS) == (10, 30)
    assert read_pixels(settings(min_pixels=30), LIMITS) == (30, LIMITS.most)
    assert read_pixels(settings(min_pixels=30), LIMITS, older_names=False) == LIMITS


@pytest.mark.parametrize(
    "values",
    [
        {"size": {"longest_edge": 20}},
        {"size": 20},
        {"min_pixels": 0},
        {"max_pixels": -1},
        {"max_pixels": 10**400},
        {"max_pixels": 1.5},
        {"max_pixels": True},
    ],
)
def test_limits_that_the_processor_would_refuse(values: dict[str, object]) -> None:
    with pytest.raises(UnknownModelError):
        read_pixels(settings(**values), LIMITS)


@pytest.mark.parametrize("values", [{}, {"do_resize": False}, {"patch_size": 0}])
def test_settings_without_known_patches(values: dict[str, object]) -> None:
    with pytest.raises(UnknownModelError):
        Patches.read(settings(**values), LIMITS)


@pytest.mark.parametrize(("width", "height"), [(201, 1), (1, 201), (0, 5), (5, 0), (-1, 4)])
def test_extreme_ratios_are_refused(width: int, height: int) -> None:
    with pytest.raises(InputValueError, match="no image of"):
        PATCHES.resize_image(height, width, LIMITS)
    if min(width, height) < 1:
        with pytest.raises(InputValueError, match="no image of"):
            PATCHES.resize_frames(2, height, width, LIMITS)


def test_a_video_of_too_few_frames_is_refused() -> None:
    with pytest.raises(InputValueError, match="1 frames"):
        PATCHES.resize_frames(1, 100, 100, LIMITS)


def test_too_many_tokens_are_refused_before_they_are_made() -> None:
    with pytest.raises(LimitError):
        PATCHES.tokens((10**9, 100, 100))
