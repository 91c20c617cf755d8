import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mmhash
from mmhash.errors import InputError, InputTypeError, InputValueError
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
def test_other_sources_are_refused(source: Any) -> None:
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


@pytest.mark.parametrize("read", [mmhash.video, mmhash.audio])
def test_without_pyav_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, read: Callable[..., Any]
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(InputError, match=r"install mmhash-keys\[media\]"):
        read(FILM)
