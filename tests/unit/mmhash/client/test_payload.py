"""An image that is sent as a file comes back as it was, or is refused."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

import mmhash
from mmhash.client.payload import payload_of
from mmhash.image import read_orientation

MODES = ["1", "L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I", "F", "I;16"]


def noise(mode: str, size: tuple[int, int] = (33, 21)) -> Image.Image:
    nbytes = len(Image.new(mode, size).tobytes())
    return Image.frombytes(mode, size, bytes(i * i % 251 for i in range(nbytes)))


def reopened(image: Image.Image) -> Image.Image:
    return Image.open(BytesIO(payload_of(image, "bytes").content))


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_comes_back_as_it_was(mode: str) -> None:
    image = noise(mode)
    assert mmhash.key(reopened(image)) == mmhash.key(image)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_what_an_image_was_read_from_does_not_matter(form: str) -> None:
    rotated = Image.Exif()
    rotated[0x0112] = 6
    file = BytesIO()
    noise("RGB").save(file, form, exif=rotated)
    image = Image.open(file)
    assert mmhash.key(reopened(image)) == mmhash.key(image)


def test_what_a_file_cannot_hold_is_refused() -> None:
    clear = noise("RGB")
    clear.info["transparency"] = (0, 0, 0)
    for image in (noise("P"), noise("PA"), noise("HSV"), clear):
        with pytest.raises(mmhash.InputTypeError, match="of='pixels'"):
            payload_of(image, "pixels")


def test_an_image_without_a_pixel_or_with_half_of_them_is_refused() -> None:
    file = BytesIO()
    noise("RGB", (330, 210)).save(file, "PNG")
    half = BytesIO(file.getvalue()[: len(file.getvalue()) // 2])
    for image in (Image.open(half), Image.new("RGB", (0, 3)), Image.new("L", (3, 0))):
        with pytest.raises(mmhash.InputValueError, match="cannot be sent"):
            payload_of(image, "pixels")


def test_an_animation_is_refused() -> None:
    file = BytesIO()
    noise("RGB").save(file, "WEBP", save_all=True, append_images=[noise("RGB", (33, 21)).rotate(9)])
    with pytest.raises(mmhash.InputValueError, match="several frames"):
        payload_of(Image.open(file), "pixels")


def test_an_array_s_bytes_are_not_copied() -> None:
    array = np.arange(12, dtype=np.uint8)
    payload = payload_of(array, "bytes")
    array[0] = 99
    assert payload.content[0] == 99


def test_an_orientation_comes_along() -> None:
    for mode in ("1", "L", "LA", "RGB", "RGBA", "I;16"):
        image = noise(mode)
        exif = Image.Exif()
        exif[0x0112] = 6
        image.info["exif"] = exif.tobytes()
        sent = reopened(image)
        assert read_orientation(sent) == 6
        assert mmhash.key(sent) == mmhash.key(image)
    image = noise("CMYK")
    image.info["exif"] = exif.tobytes()
    with pytest.raises(mmhash.InputTypeError, match="EXIF orientation 6 cannot be sent"):
        payload_of(image, "pixels")
