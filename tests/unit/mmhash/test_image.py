import io

import numpy as np
import pytest
from PIL import Image

import mmhash
from mmhash import LimitError
from mmhash.image import read_image

PIXELS = bytes(range(36))


def image(mode: str = "RGB", size: tuple[int, int] = (3, 4)) -> Image.Image:
    bands = len(Image.new(mode, (1, 1)).tobytes())
    return Image.frombytes(mode, size, (PIXELS * 4)[: size[0] * size[1] * bands])


def encoded(frames: list[Image.Image], kind: str, **options: object) -> Image.Image:
    buffer = io.BytesIO()
    frames[0].save(buffer, kind, save_all=len(frames) > 1, append_images=frames[1:], **options)
    return Image.open(io.BytesIO(buffer.getvalue()))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "F",
                                  "LA", "PA", "RGBX", "RGBa", "La", "I;16"])  # fmt: skip
def test_every_mode_has_a_key(mode: str) -> None:
    assert mmhash.key(image(mode)) == mmhash.key(image(mode).copy())


def test_mode_and_size_change_a_key() -> None:
    keys = mmhash.keys(
        [image("RGB", (3, 4)), image("RGB", (4, 3)), image("RGB", (12, 1)), image("L", (6, 6)),
         image("L", (36, 1)), image("HSV", (3, 4)), np.asarray(image()), PIXELS]
    )  # fmt: skip
    assert len(set(keys)) == len(keys)


def test_palette_twins_differ() -> None:
    one, other = image("P", (6, 6)), image("P", (6, 6))
    one.putpalette(bytes(range(108)))
    other.putpalette(bytes(range(1, 109)))
    assert mmhash.digest(one) == mmhash.digest(other)
    assert mmhash.key(one) != mmhash.key(other)


def test_unused_colors_of_a_format_do_not_change_a_key() -> None:
    picture = image("P", (6, 6))
    picture.putpalette(bytes(range(108)))
    assert mmhash.key(encoded([picture], "PNG")) == mmhash.key(encoded([picture], "GIF"))


def test_transparency_changes_a_key() -> None:
    pictures = [image("P", (6, 6)) for _ in range(5)]
    for picture, transparency in zip(pictures, [None, 0, 1, b"\0", (0, 0, 0)], strict=True):
        if transparency is not None:
            picture.info["transparency"] = transparency
    assert len(set(mmhash.keys(pictures))) == 5


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF"])
def test_a_lossless_file_has_the_key_of_its_pixels(kind: str) -> None:
    assert mmhash.key(encoded([image()], kind)) == mmhash.key(image())


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_every_frame_changes_a_key(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "lime", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    whole, cut = encoded(frames, kind, **options), encoded(frames[:2], kind, **options)
    swapped = encoded([frames[0], frames[2], frames[1]], kind, **options)
    contents = [read_image(each) for each in (whole, cut, swapped)]
    assert [count for count, _, _ in contents] == [3, 2, 3]
    assert len({bytes(pixels) for _, pixels, _ in contents}) == 3
    assert whole.tell() == 0


def test_a_gif_whose_frames_grow_has_one_key() -> None:
    """Pillow keeps the larger size when it goes back to the first frame."""
    small, large = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (9, 7), "blue")
    growing = encoded([small, large], "GIF")
    assert growing.size == (4, 4)
    first = read_image(growing)
    assert read_image(growing) == first
    assert read_image(encoded([small, large], "GIF")) == first


def test_the_limit_is_checked_before_pixels_are_read() -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "lime", "blue")]
    moving = encoded(frames, "TIFF")
    assert read_image(moving, max_pixels=192)[0] == 3
    with pytest.raises(LimitError, match="191 pixels"):
        read_image(moving, max_pixels=191)
