"""An edited picture under the key of its file: one picture's answer for another.

The current frame is compared with the file's, and the file is read through a second object.
"""

import io
from collections.abc import Callable
from typing import Any

import pytest
from PIL import GifImagePlugin, Image, ImageChops, ImageDraw, ImageOps, ImageSequence

import mmhash
from mmhash import InputValueError
from tests.support.animations import FORMATS, SIZE, animation, noise, opened


def putpixel(image: Any) -> None:
    band = image.getpixel((3, 3))
    image.putpixel((3, 3), tuple(255 - v for v in band) if isinstance(band, tuple) else 255 - band)


def paste(image: Any) -> None:
    image.paste(ImageChops.invert(image.convert("RGB")).convert(image.mode))


def draw(image: Any) -> None:
    putpixel(image)
    ImageDraw.Draw(image).point((5, 5))


def thumbnail(image: Any) -> None:
    image.thumbnail((4, 4))


def transparency(image: Any) -> None:
    image.info["transparency"] = 7


def mirror(image: Any) -> None:
    image.im = ImageOps.mirror(image.copy()).im


EDITS = [putpixel, paste, draw, thumbnail, transparency, mirror]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("kind", FORMATS)
def test_an_edited_frame_is_refused(kind: str, number: int, edit: Callable[[Any], None]) -> None:
    image = opened(animation(kind))
    image.seek(number)
    image.load()
    edit(image)
    printable = image.tobytes()
    with pytest.raises(InputValueError, match=r"several frames.*copy\(\)"):
        mmhash.key(image)
    assert image.tobytes() == printable
    assert image.tell() == number
    assert mmhash.key(image.copy()) == mmhash.key(Image.Image.copy(image))


@pytest.mark.parametrize("kind", ["GIF", "PNG"])
def test_an_edit_that_later_frames_are_drawn_on_is_refused(kind: str) -> None:
    image = opened(animation(kind))
    image.load()
    putpixel(image)
    image.seek(1)  # and not decoded yet
    with pytest.raises(InputValueError, match="several frames"):
        mmhash.key(image)


@pytest.mark.parametrize("disposal", [2, 3])
def test_an_edit_that_a_frame_hides_is_refused(disposal: int) -> None:
    """Frame 1 covers the edit, and what it disposes of brings it back in frame 2."""
    image = opened(animation("GIF", disposal=disposal))
    image.load()
    image.paste((1, 2, 3) if image.mode == "RGB" else 5, (0, 0, *SIZE))
    image.seek(1)
    image.load()
    unedited = opened(animation("GIF", disposal=disposal))
    unedited.seek(1)
    if image.dispose is not None and image.tobytes() == unedited.tobytes():
        try:
            found = mmhash.key(image)
        except InputValueError:
            return
        image.seek(2)
        unedited.seek(2)
        assert image.tobytes() == unedited.tobytes()
        assert found == mmhash.key(unedited)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_edit_that_was_taken_back_is_none(kind: str) -> None:
    data = animation(kind)
    image = opened(data)
    image.load()
    before = image.getpixel((3, 3))
    putpixel(image)
    image.putpixel((3, 3), before)
    assert mmhash.key(image) == mmhash.key(opened(data))


@pytest.mark.parametrize("kind", FORMATS)
def test_what_seeking_drops_does_not_count(kind: str) -> None:
    data = animation(kind)
    image = opened(data)
    image.seek(1)
    image.load()
    putpixel(image)
    image.seek(0)
    assert mmhash.key(image) == mmhash.key(opened(data))


def test_copies_have_the_key_of_what_they_show() -> None:
    image = opened(animation("GIF"))
    frames = [frame.copy() for frame in ImageSequence.Iterator(image)]
    assert len(set(mmhash.keys(frames))) == 3
    for made in (image.convert("RGB"), image.resize((5, 5)), ImageOps.exif_transpose(image)):
        assert mmhash.key(made) == mmhash.key(Image.frombytes(made.mode, made.size, made.tobytes()))


def test_iterating_goes_on_while_it_is_hashed() -> None:
    data = animation("GIF")
    expected = [frame.tobytes() for frame in ImageSequence.Iterator(opened(data))]
    whole = mmhash.key(opened(data))
    found = []
    for frame in ImageSequence.Iterator(opened(data)):
        assert mmhash.key(frame) == whole
        found.append(frame.tobytes())
    assert found == expected


@pytest.mark.parametrize("edit", [putpixel, paste, transparency, thumbnail])
@pytest.mark.parametrize("kind", [*FORMATS, "JPEG", "BMP"])
def test_an_edit_of_a_single_frame_counts(kind: str, edit: Callable[[Any], None]) -> None:
    file = io.BytesIO()
    noise(1).save(file, kind)
    image = opened(file.getvalue())
    image.load()
    edit(image)
    assert mmhash.key(image) != mmhash.key(opened(file.getvalue()))
    assert mmhash.key(image) == mmhash.key(image.copy())


def test_a_drafted_jpeg_is_as_it_was_drafted() -> None:
    file = io.BytesIO()
    noise(1).resize((256, 192)).save(file, "JPEG")
    whole, drafted, loaded = (opened(file.getvalue()) for _ in range(3))
    drafted.draft("L", (64, 48))
    loaded.draft("L", (64, 48))
    loaded.load()
    assert mmhash.key(drafted) == mmhash.key(loaded) == mmhash.key(loaded.copy())
    assert mmhash.key(drafted) != mmhash.key(whole)


def test_another_loading_strategy_is_not_taken_for_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paletted = [noise(number).convert("P") for number in range(3)]
    file = io.BytesIO()
    paletted[0].save(file, "GIF", save_all=True, append_images=paletted[1:])
    image = opened(file.getvalue())
    image.seek(1)
    image.load()
    first = mmhash.key(image)
    strategy = GifImagePlugin.LoadingStrategy.RGB_ALWAYS
    monkeypatch.setattr(GifImagePlugin, "LOADING_STRATEGY", strategy)
    assert mmhash.key(opened(file.getvalue())) != first
