import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mmhash
from mmhash.errors import InputError, InputTypeError, InputValueError
from mmhash.framing import frame
from mmhash.media import recipe_key
from tests.support.clips import make_audio, make_video

FILM, SOUND = make_video("h264.mp4"), make_audio("pcm.wav")


def test_a_source_is_bytes_or_a_path(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(FILM)
    expected = mmhash.video(FILM, fps=2)
    assert expected.key == recipe_key(mmhash.key(FILM), expected.recipe)
    strided = memoryview(bytes(byte for pair in zip(FILM, FILM, strict=True) for byte in pair))[::2]
    for source in (path, str(path), bytearray(FILM), memoryview(FILM), strided):
        assert mmhash.video(source, fps=2) == expected
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mmhash.video(mapped, fps=2) == expected


@pytest.mark.parametrize("source", [b"", None, 3])
def test_others_are_refused(source: Any) -> None:
    with pytest.raises((InputTypeError, InputValueError)):
        mmhash.video(source)


def test_errors_of_a_file_are_those_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(FILM)
    wrong: Any
    for wrong in ({"tenant": b"short"}, {"threads": 0}, {"algorithm": "md5"}, {"fps": -1}):
        errors = []
        for source in (FILM, path):
            with pytest.raises(InputValueError) as caught:
                mmhash.video(source, **wrong)
            errors.append(str(caught.value))
        assert errors[0] == errors[1]
    (tmp_path / "sound.wav").write_bytes(SOUND)
    with pytest.raises(InputValueError, match="tenant"):
        mmhash.audio(tmp_path / "sound.wav", tenant=b"short")


def test_by_frames_equal_frames_of_two_files_have_equal_keys() -> None:
    # The same frames in another container: the files differ.
    fragmented = make_video("h264.mp4", options={"movflags": "frag_keyframe+empty_moov"})
    assert fragmented != FILM
    assert mmhash.video(FILM).key != mmhash.video(fragmented).key
    clips = [mmhash.video(file, fps=2, by="frames") for file in (FILM, fragmented)]
    assert clips[0].frames == clips[1].frames
    assert clips[0].key == clips[1].key == list_key(clips[0].frames)


def list_key(frames: list[mmhash.Digest]) -> mmhash.Digest:
    return frame("list", "", (len(frames),), mmhash.digest(b"".join(one.bytes for one in frames)))


def test_windows_of_a_clip() -> None:
    clip = mmhash.audio(SOUND, rate=8000, channels=1, window=0.3, by="frames")
    assert clip.recipe.window == 2400
    assert len(clip.windows) == 4

    whole = mmhash.audio(SOUND, by="frames")
    assert len(whole.windows) == 1


@pytest.mark.parametrize("by", ["source", "frames"])
@pytest.mark.parametrize("read", [mmhash.video, mmhash.audio])
def test_without_pyav_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, read: Callable[..., Any], by: str
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(InputError, match=r"install mmhash-keys\[media\]"):
        read(FILM, by=by)
