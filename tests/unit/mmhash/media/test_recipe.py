from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmhash.errors import InputTypeError, InputValueError, LimitError
from mmhash.media.recipe import AudioIndex, VideoIndex, runs_of, select_audio, select_video

FILM = VideoIndex(300, Fraction(30), 640, 480)
SOUND = AudioIndex(441_000, 44_100, 2)


@given(st.sets(st.integers(0, 60), min_size=1))
def test_runs_hold_the_indices_and_nothing_else(chosen: set[int]) -> None:
    indices = sorted(chosen)
    runs = runs_of(indices)
    assert indices == [first + step * k for first, step, count in runs for k in range(count)]
    assert all((step == 0) == (count == 1) for _, step, count in runs)


@given(st.integers(1, 400), st.integers(1, 400))
def test_count_is_spread_as_numpy_spreads_it(frames: int, count: int) -> None:
    recipe = select_video(FILM._replace(frames=frames), count=count)
    if count >= frames:
        assert list(recipe.indices) == list(range(frames))
    else:
        ends = np.linspace(0, frames - 1, count)
        assert np.all(np.abs(np.array(recipe.indices) - ends) <= 1)
        assert len(set(recipe.indices)) == count


@pytest.mark.parametrize(
    ("fps", "expected"),
    [
        (1, list(range(0, 300, 30))),
        (1.0, list(range(0, 300, 30))),
        (0.1, [0]),
        (30, list(range(300))),
        (1000, list(range(300))),
        (20, [number * 3 // 2 for number in range(200)]),
    ],
)
def test_fps_selects_the_frame_that_is_shown(fps: float, expected: list[int]) -> None:
    assert list(select_video(FILM, fps=fps).indices) == expected


def test_requests_for_the_same_frames_have_one_recipe() -> None:
    by_rate = select_video(FILM, fps=1).canonical()
    assert by_rate == select_video(FILM, indices=range(0, 300, 30)).canonical()
    assert select_video(FILM).canonical() == select_video(FILM, count=300).canonical()
    assert select_video(FILM, size=(640, 480)) == select_video(FILM)
    short = select_video(FILM, fps=10, max_frames=5).canonical()
    assert short == select_video(FILM, count=5).canonical()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"fps": 1, "count": 1}, InputValueError),
        ({"fps": 0}, InputValueError),
        ({"fps": float("nan")}, InputValueError),
        ({"fps": float("inf")}, InputValueError),
        ({"fps": "2"}, InputTypeError),
        ({"fps": 1e-12}, InputValueError),
        ({"count": 0}, InputValueError),
        ({"count": True}, InputTypeError),
        ({"indices": []}, InputValueError),
        ({"indices": [1, 1]}, InputValueError),
        ({"indices": [300]}, InputValueError),
        ({"indices": [1.0]}, InputTypeError),
        ({"indices": [1, 2, 3], "max_frames": 2}, LimitError),
        ({"size": [640, 480]}, InputTypeError),
        ({"size": (0, 1)}, InputValueError),
    ],
    ids=str,
)
def test_other_selections_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        select_video(FILM, **options)


def test_ranges_of_samples() -> None:
    whole = select_audio(SOUND)
    assert whole == (0, 441_000, 44_100, 2, 0, "")
    assert whole == select_audio(SOUND, rate=44_100, channels=2, stop=99, window=10)
    assert select_audio(SOUND, start=0.5, stop=1)[:2] == (22_050, 44_100)
    assert select_audio(SOUND, rate=16_000, window=0.5).window == 8000


@pytest.mark.parametrize(
    "options",
    [{"start": 10}, {"start": 2, "stop": 1}, {"start": -1}, {"window": 1e-6}, {"rate": 0}],
    ids=str,
)
def test_empty_ranges_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputValueError):
        select_audio(SOUND, **options)
