"""Media that a decoder process reads without PyAV."""

import pytest

from mmhash_service.decoder.media import read_media
from mmhash_service.decoder.messages import (
    MediaJob,
    Refused,
    VideoIndexed,
    VideoSelection,
)
from tests.support.clips import make_audio, make_video

JOB = MediaJob("blake3", "video", 0, 1 << 20, 1.0, 1.0)


def test_only_the_index_of_plain_videos_is_read_without_pyav(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    film = make_video("h264.mp4")
    expected = read_media(film, JOB)
    assert expected == VideoIndexed(24, 12, 1, 64, 48)
    monkeypatch.setattr("mmhash_service.decoder.media.av", None)
    assert read_media(film, JOB) == expected
    frames = MediaJob("blake3", "video", 0, 1 << 20, 1.0, 1.0, VideoSelection([0], None))
    sound = MediaJob("blake3", "audio", 0, 1 << 20, 1.0, 1.0)
    for body, job in (
        (make_video("h264-fragmented.mp4"), JOB),
        (film, frames),
        (make_audio("pcm.wav"), sound),
    ):
        answer = read_media(body, job)
        assert isinstance(answer, Refused)
        assert answer.problem == "no-media-extra"
