"""A PIL image object stands for the frame that it shows; one of several frames is refused."""

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

import mmhash
from mmhash import InputValueError

ANIMATED = ["GIF", "PNG", "WEBP", "AVIF", "TIFF", "MPO"]


def noise(seed: int) -> Image.Image:
    """Return a picture; another seed has other pixels."""
    values = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(values)


def encoded(kind: str, frames: int = 1) -> bytes:
    """Encode frames of noise; a format that this Pillow does not write skips the test."""
    pictures = [noise(number) for number in range(frames)]
    options = {"save_all": True, "append_images": pictures[1:]} if frames > 1 else {}
    file = io.BytesIO()
    try:
        pictures[0].save(file, kind, **options)
    except (KeyError, OSError):
        pytest.skip(f"Pillow does not write {kind} here")
    return file.getvalue()


def opened(data: bytes) -> Any:
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("load", [False, True])
@pytest.mark.parametrize("kind", ANIMATED)
def test_several_frames_are_refused_and_left_alone(kind: str, load: bool, number: int) -> None:
    image, untouched = opened(encoded(kind, 3)), opened(encoded(kind, 3))
    for each in (image, untouched):
        each.seek(number)
        if load:
            each.load()
    with pytest.raises(InputValueError, match=r"several frames: give the bytes .* copy\(\)"):
        mmhash.key(image)
    assert image.tell() == number
    assert image.tobytes() == untouched.tobytes()


@pytest.mark.parametrize("kind", ANIMATED)
def test_a_copy_is_the_frame_that_it_shows(kind: str) -> None:
    frames = [frame.copy() for frame in ImageSequence.Iterator(opened(encoded(kind, 3)))]
    assert len(set(mmhash.keys(frames))) == 3
    for frame in frames:
        twins = (pickle.loads(pickle.dumps(frame)), copy.deepcopy(frame), frame.copy())
        assert set(mmhash.keys(twins)) == {mmhash.key(frame)}


@pytest.mark.parametrize("kind", ["GIF", "PNG", "TIFF", "JPEG"])
def test_closed_before_it_was_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(encoded(kind))
    with Image.open(path) as image:
        pass
    with pytest.raises(InputValueError, match=r"closed before load\(\)"):
        mmhash.key(image)
    image = Image.open(path)
    image.load()
    image.close()
    with pytest.raises(InputValueError, match=r"closed"):
        mmhash.key(image)
