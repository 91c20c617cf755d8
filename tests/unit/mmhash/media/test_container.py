from fractions import Fraction

import pytest

from mmhash.errors import InputValueError
from mmhash.media.container import (
    first_stream,
    open_container,
    read_audio_index,
    read_video_index,
)
from mmhash.media.recipe import AudioIndex, VideoIndex
from tests.support.clips import AUDIOS, VIDEOS, make_audio, make_video, remux


@pytest.mark.parametrize("name", VIDEOS)
def test_the_index_of_a_video(name: str) -> None:
    index = read_video_index(make_video(name, 25, rate=12))
    assert index == VideoIndex(25, Fraction(12), 64, 48)


@pytest.mark.parametrize("container", ["matroska", "mp4"])
def test_only_packets_of_the_video_are_frames(container: str) -> None:
    film = remux(make_video("h264.mp4", 25, rate=12), make_audio("mp3.mp3"), container)
    assert read_video_index(film) == VideoIndex(25, Fraction(12), 64, 48)


@pytest.mark.parametrize("name", AUDIOS)
def test_samples_are_those_that_a_decoder_returns(name: str) -> None:
    assert read_audio_index(make_audio(name, 0.7, rate=16_000)) == AudioIndex(11_200, 16_000, 2)


def test_a_file_without_the_stream_is_refused() -> None:
    with pytest.raises(InputValueError, match="no audio"):
        read_audio_index(make_video("h264.mp4"))
    with pytest.raises(InputValueError, match="no video"):
        read_video_index(make_audio("pcm.wav"))


@pytest.mark.parametrize("name", VIDEOS)
@pytest.mark.parametrize("rate", [7, 25])
def test_the_index_needs_no_packets_of_a_header_with_a_rate(name: str, rate: int) -> None:
    film = make_video(name, 30, rate=rate)
    with open_container(film) as container:
        stream = first_stream(container, "video")
        assert read_video_index(film).rate == stream.average_rate == rate
