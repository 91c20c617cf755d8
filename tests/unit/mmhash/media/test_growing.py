from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash.errors import InputTypeError, InputValueError
from mmhash.media import GrowingAudio, GrowingVideo

FRAMES = [np.full((4, 6, 3), number, np.uint8) for number in range(40)]
NOISE = np.random.default_rng(0).normal(size=(5000, 2)).astype(np.float32)
TENANT = bytes(32)


def test_a_growing_video_keeps_the_keys_of_its_closed_windows() -> None:
    clip = GrowingVideo(16, tenant=TENANT)
    closed: list[Any] = []
    for number, frame in enumerate(FRAMES, 1):
        clip.append(frame)
        assert clip.windows[: len(closed)] == closed
        closed = list(clip.windows)
        assert clip.key() == mmhash.key(FRAMES[:number], tenant=TENANT)
    assert closed == [mmhash.key(FRAMES[at : at + 16], tenant=TENANT) for at in (0, 16)]
    assert clip.tail == mmhash.key(FRAMES[32:], tenant=TENANT)
    assert clip.frames == mmhash.keys(FRAMES, tenant=TENANT)


@pytest.mark.parametrize("piece", [1, 7, 1000, 4999, 5000])
def test_the_pieces_of_a_growing_clip_do_not_count(piece: int) -> None:
    clip = GrowingAudio(1500, algorithm="xxh3")
    for start in range(0, len(NOISE), piece):
        clip.append(NOISE[start : start + piece])
    windows = [NOISE[at : at + 1500] for at in range(0, 5000, 1500)]
    assert clip.windows == mmhash.keys(windows[:3], algorithm="xxh3")
    assert clip.tail == mmhash.key(windows[3], algorithm="xxh3")
    assert clip.key() == mmhash.key(windows, algorithm="xxh3")
    assert [shape for _, shape in clip.contents()] == [(1500, 2)] * 3 + [(500, 2)]


def test_each_sample_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = 0

    class Counting(mmhash.Hasher):
        def update(self, data: Any) -> Any:
            nonlocal hashed
            hashed += memoryview(data).nbytes
            return super().update(data)

    monkeypatch.setattr("mmhash.media.growing.Hasher", Counting)
    clip = GrowingAudio(1000)
    for start in range(0, len(NOISE), 10):
        clip.append(NOISE[start : start + 10])
        assert clip.key()
    # The samples, the key of each window, and the key of a tail for each of 500 calls.
    assert hashed <= NOISE.nbytes + 32 * (5 + 500)


def test_clips_that_overlap_share_keys() -> None:
    clips = GrowingVideo(), GrowingVideo()
    for clip, frames in zip(clips, (FRAMES[:30], FRAMES[10:]), strict=True):
        for frame in frames:
            clip.append(frame)
    assert clips[0].frames[10:] == clips[1].frames[:20]


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        (lambda: GrowingVideo(0), InputValueError),
        (lambda: GrowingAudio(True), InputTypeError),
        (lambda: GrowingAudio(8).append(NOISE[:, 0]), InputTypeError),
        (lambda: GrowingAudio(8).append(NOISE.astype(np.float64)), InputTypeError),
    ],
)
def test_others_are_refused(attempt: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        attempt()


def test_pieces_have_one_form() -> None:
    clip = GrowingAudio(8)
    clip.append(NOISE)
    with pytest.raises(InputValueError, match="of the first"):
        clip.append(NOISE[:, :1])
