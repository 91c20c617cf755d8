"""A PIL image whose file is closed, shared or gone, or that came from another process.

An image without a file counts as the frame that it shows; what cannot be read is named.
"""

import copy
import io
import multiprocessing
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from PIL import GifImagePlugin, Image, ImageFile

import mmhash
from mmhash import InputError, InputValueError, MMHashError
from tests.support.animations import FORMATS, animation, noise, opened

SINGLE = ["GIF", "PNG", "WEBP", "TIFF", "JPEG", "BMP", "PPM"]


def state(image: Any, file: Any) -> tuple[Any, ...]:
    """All that a caller sees of an image and its file, the pixels last: they are decoded then."""
    size = (image.tell(), image.mode, image.size, dict(image.info), file.tell())
    return (*size, image.getpalette(), image.tobytes())


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("load", [False, True])
@pytest.mark.parametrize("kind", FORMATS)
def test_the_image_stays_as_it_was(kind: str, load: bool, number: int) -> None:
    data = animation(kind)
    images = []
    for _ in range(2):
        file = io.BytesIO(data)
        image = Image.open(file)
        image.seek(number)
        if load:
            image.load()
        images.append((image, file))
    (hashed, hashed_file), (other, other_file) = images
    assert mmhash.key(hashed) == mmhash.key(opened(data))
    assert (hashed.fp is None) == (other.fp is None)
    assert hashed_file.tell() == other_file.tell()
    assert state(hashed, hashed_file) == state(other, other_file)
    for later in (2, 0, 1):  # and goes on as it would have
        hashed.seek(later)
        other.seek(later)
        assert state(hashed, hashed_file)[:5] == state(other, other_file)[:5]
        assert hashed.tobytes() == other.tobytes()


@pytest.mark.parametrize("kind", SINGLE)
def test_a_file_object_stays_where_it_was(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "image"
    noise(1).save(path, kind)
    with path.open("rb") as file:
        image = Image.open(file)
        file.seek(5)
        mmhash.key(image)
        assert file.tell() == 5


@pytest.mark.parametrize("frame", [0, 1])
@pytest.mark.parametrize("kind", FORMATS)
def test_after_its_file_was_closed_an_image_is_what_it_shows(
    kind: str, frame: int, tmp_path: Path
) -> None:
    path = tmp_path / "image"
    data = animation(kind)
    path.write_bytes(data)
    with Image.open(path) as image:
        image.seek(frame)
        image.load()
    # WebP and AVIF keep the file's bytes, and show all frames still.
    whole = kind in {"WEBP", "AVIF"}
    assert mmhash.key(image) == mmhash.key(opened(data) if whole else image.copy())
    path.unlink()
    assert mmhash.key(image) == mmhash.key(image)


@pytest.mark.parametrize("kind", SINGLE)
def test_a_single_frame_outlives_its_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "image"
    noise(1).save(path, kind)
    expected = mmhash.key(opened(path.read_bytes()))
    with Image.open(path) as image:
        image.load()
    assert mmhash.key(image) == expected


@pytest.mark.parametrize("kind", ["GIF", "PNG", "TIFF", "MPO", "JPEG"])
def test_closed_before_it_was_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "image"
    if kind == "JPEG":
        noise(1).save(path, kind)
    else:
        path.write_bytes(animation(kind))
    with Image.open(path) as image:
        pass
    with pytest.raises(InputValueError, match="closed before its pixels were read"):
        mmhash.key(image)
    image = Image.open(path)
    image.load()
    image.close()
    with pytest.raises(InputValueError, match="closed, and its pixels are gone"):
        mmhash.key(image)


def test_the_caller_s_own_file_may_be_closed(tmp_path: Path) -> None:
    file = io.BytesIO(animation("GIF"))
    image = Image.open(file)
    image.load()
    file.close()
    assert mmhash.key(image) == mmhash.key(image.copy())


class Unusual(io.BytesIO):
    """A file object that is read only by its methods."""

    def getvalue(self) -> bytes:
        raise AssertionError

    getbuffer = getvalue  # type: ignore[assignment]


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "MPO"])
def test_any_file_object(kind: str) -> None:
    data = animation(kind)
    file = Unusual(data)
    image = Image.open(file)
    image.seek(1)
    image.load()
    position = file.tell()
    assert mmhash.key(image) == mmhash.key(opened(data))
    assert file.tell() == position


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("frame", [0, 1])
def test_copies_of_a_process_are_what_they_show(kind: str, frame: int) -> None:
    image = opened(animation(kind))
    image.seek(frame)
    expected = mmhash.key(image.copy())
    for twin in (pickle.loads(pickle.dumps(image)), copy.deepcopy(image), copy.copy(image)):
        assert mmhash.key(twin) == expected
        twin.putpixel((0, 0), 0)
        assert mmhash.key(twin) == mmhash.key(twin.copy())


def test_an_image_reaches_a_spawned_process() -> None:
    image = opened(animation("GIF"))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(mmhash.key, (image,)) == mmhash.key(image.copy())


class Bare(Image.Image):
    def __init__(self) -> None:
        pass


class Forgetful(Image.Image):
    def tobytes(self, *_: Any) -> bytes:
        raise KeyError("pixels")


class Closed(GifImagePlugin.GifImageFile):
    """Its constructor takes something else."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(io.BytesIO(data), name)


class Endless(GifImagePlugin.GifImageFile):
    def seek(self, frame: int) -> None:
        if frame:
            raise RuntimeError("no")
        super().seek(frame)


def test_what_a_subclass_lacks_is_a_named_error() -> None:
    for image in (Bare(), Forgetful(), ImageFile.ImageFile.__new__(GifImagePlugin.GifImageFile)):
        with pytest.raises(InputError):
            mmhash.key(image)
    data = animation("GIF")
    with pytest.raises(InputError, match="Closed cannot be read"):
        mmhash.key(Closed(data, "name"))
    with pytest.raises(MMHashError):
        mmhash.key(Endless(io.BytesIO(data)))


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, of a TIFF's tags
@pytest.mark.parametrize("kind", FORMATS)
def test_a_damaged_animation_is_a_named_error(kind: str) -> None:
    data = animation(kind)
    for cut in range(8, len(data), len(data) // 7):
        try:
            image = opened(data[:cut])
        except OSError:  # not even a header
            continue
        with suppress(MMHashError):
            mmhash.key(image)


def test_two_images_of_one_file_object() -> None:
    file = io.BytesIO(animation("TIFF"))
    one, other = Image.open(file), Image.open(file)
    one.seek(1)
    assert mmhash.key(one) == mmhash.key(other)
    one.load()
    assert mmhash.key(one) == mmhash.key(other)
