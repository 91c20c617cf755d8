"""Videos and audio clips under a recipe, by both clients: the keys of the library."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmhash
from tests.support.clips import make_audio, make_video

FILM, SOUND = make_video("h264.mp4"), make_audio("flac.flac")


def test_a_video_has_the_key_of_the_library(connect: Any, url: str, tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(FILM)
    with connect(url) as client:
        item = client.video(path, fps=2, max_frames=32, engines="vllm")
        assert item.key == mmhash.video(FILM, fps=2, max_frames=32).key
        assert (item.kind, item.frames) == ("video", ())
        assert item.engines == {"vllm": {"uuid": item.key.hex()}}
        same = client.video(FILM, indices=[0, 6, 12, 18])
        assert same.key == item.key
        other = client.video(FILM, count=3, size=(32, 24), algorithm="xxh3")
        assert other.key == mmhash.video(FILM, count=3, size=(32, 24), algorithm="xxh3").key


def test_an_audio_clip_has_the_key_of_the_library(connect: Any, url: str) -> None:
    with connect(url) as client:
        item = client.audio(SOUND, rate=8000, start=0.25, stop=0.5)
    assert item.key == mmhash.audio(SOUND, rate=8000, start=0.25, stop=0.5).key
    assert item.kind == "audio"


def test_what_is_no_clip_is_refused(connect: Any, url: str) -> None:
    with connect(url) as client:
        with pytest.raises(mmhash.InputTypeError, match="bytes of its file"):
            client.video(np.zeros((2, 4, 4, 3), np.uint8))
        with pytest.raises(mmhash.InputValueError, match="by is source or frames"):
            client.audio(SOUND, by="windows")
        with pytest.raises(mmhash.ServiceError) as caught:
            client.video(b"no video", fps=1)
    assert caught.value.type == "urn:mmhash:problem:damaged-media"
