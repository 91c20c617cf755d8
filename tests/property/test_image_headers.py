"""Sizes by headers are those of Pillow, also of damaged images, whenever both read the image."""

import io
import random
import warnings
from typing import Any

import pytest
from hypothesis import settings
from PIL import ExifTags, Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from mmhash import MMHashError
from mmhash.image import FORMATS as DECODED
from mmhash.image import read_orientation
from mmhash.prompts.headers import ImageHeader, read_size

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
MODES = {
    "JPEG": ["RGB", "L", "CMYK"],
    "PNG": ["RGB", "L", "1", "P", "LA", "RGBA"],
    "WEBP": ["RGB", "L", "RGBA"],
    "GIF": ["RGB", "L", "P", "1"],
    "BMP": ["RGB", "L", "P", "1", "RGBA"],
    "TIFF": ["RGB", "L", "P", "1", "LA", "RGBA", "CMYK", "I", "YCbCr"],
}
EXAMPLES = settings().max_examples
EXIF = {"JPEG", "PNG", "WEBP", "TIFF"}


def write(rng: random.Random, kind: str) -> bytes:
    """Return an image of a random size, with orientations by EXIF and XMP, and with frames."""
    width, height = rng.randint(1, 70), rng.randint(1, 70)
    # libtiff refuses to write an orientation that is none.
    orientation = rng.randint(1, 8) if kind == "TIFF" else rng.randint(0, 9)
    options: dict[str, Any] = {}
    if kind in EXIF and rng.random() < 0.6:
        exif = Image.Exif()
        if rng.random() < 0.5:
            exif[ExifTags.Base.Make] = "maker" * rng.randint(1, 9)
        if rng.random() < 0.9:
            exif[ExifTags.Base.Orientation] = orientation
        options["exif"] = exif
    if kind in {"JPEG", "WEBP", "PNG"} and rng.random() < 0.3:
        xmp = f'<x tiff:Orientation="{orientation}"/>'
        if kind == "PNG":
            info = PngInfo()
            info.add_itxt("XML:com.adobe.xmp", xmp, zip=rng.random() < 0.5)
            options["pnginfo"] = info
        else:
            options["xmp"] = xmp.encode()
    if kind in {"GIF", "PNG", "WEBP"} and rng.random() < 0.3:
        frames = [Image.new("RGB", (width, height), color) for color in range(2)]
        options |= {"save_all": True, "append_images": frames}
    if kind == "WEBP":
        options["lossless"] = rng.random() < 0.5
    if kind == "TIFF":
        options["compression"] = rng.choice([None, "tiff_lzw", "raw"])
        options["big_tiff"] = rng.random() < 0.3
    mode = rng.choice(MODES[kind])
    image = Image.new("RGB", (width, height), (rng.randrange(200), 9, 9)).convert(mode)
    if mode in {"LA", "RGBA"}:
        image.putalpha(rng.randrange(256))
    if kind == "PNG" and mode in {"RGB", "P", "L"} and "save_all" not in options:
        options["transparency"] = rng.choice([None, (9, 9, 9) if mode == "RGB" else 0])
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def damage(rng: random.Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(min(len(damaged), rng.choice([64, 400, 4000])))
        match rng.randrange(5):
            case 0 | 1 | 2:
                damaged[at] = rng.choice([rng.randrange(256), 0, 255, 1, 2, 6, 8])
            case 3:
                del damaged[at : min(at + rng.randint(1, 6), len(damaged) - 1)]
            case 4:
                damaged[at:at] = rng.randbytes(rng.randint(1, 6))
    return bytes(damaged)


def by_pillow(data: bytes) -> ImageHeader | None:
    """Return what Pillow reads of an image that it can decode; a TIFF is turned already."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data))
            kind: Any = {"MPO": "JPEG"}.get(str(image.format), image.format)
            image.load()
            return ImageHeader(kind, *image.size, 1 if kind == "TIFF" else orientation_of(image))
    except Exception:  # noqa: BLE001  (Pillow raises any for damaged bytes)
        return None


def orientation_of(image: Image.Image) -> int:
    """Return the orientation that exif_transpose applies; if it fails, none."""
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
        ImageOps.exif_transpose(image)
    except Exception:  # noqa: BLE001  (as above)
        return 1
    return int(orientation) if orientation in range(1, 9) else 1


def by_header(data: bytes) -> ImageHeader | None:
    try:
        header = read_size(data)
    except MMHashError:
        return None
    return ImageHeader("TIFF", *header.oriented) if header.format == "TIFF" else header


@pytest.mark.parametrize("kind", FORMATS)
def test_size_and_orientation_of_written_images(kind: str) -> None:
    rng = random.Random(kind)
    for _ in range(4 * EXAMPLES):
        data = write(rng, kind)
        assert by_header(data) == by_pillow(data) is not None


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.filterwarnings("ignore")
def test_size_and_orientation_of_damaged_images(kind: str) -> None:
    rng = random.Random(kind)
    both = 0
    for _ in range(10 * EXAMPLES):
        data = damage(rng, write(rng, kind))
        ours, theirs = by_header(data), by_pillow(data)
        if ours is not None and theirs is not None:
            both += 1
            assert ours == theirs, data
    assert both > 5


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.filterwarnings("ignore")
def test_mode_that_pillow_decodes(kind: str) -> None:
    """vLLM names an image by its file, and by how it had to convert it to RGB."""
    rng = random.Random(kind)
    known = set()
    for number in range(10 * EXAMPLES):
        data = write(rng, kind)
        data = damage(rng, data) if number % 2 else data
        try:
            header = read_size(data)
        except MMHashError:
            continue
        try:
            image = Image.open(io.BytesIO(data))
            image.load()
        except Exception:  # noqa: BLE001  (as above)
            continue
        known.add(header.is_rgb)
        assert header.is_rgb in {None, image.mode == "RGB"}, data
        if header.is_rgb:
            assert header.is_keyed == ("transparency" in image.info), data
    assert True in known or kind == "GIF"
    assert False in known


def by_vllm(data: bytes) -> int | None:
    """Return the orientation that vLLM applies, which ignores every error; None if it reads none."""
    try:
        image = Image.open(io.BytesIO(data))
        image.load()
    except Exception:  # noqa: BLE001  (as above)
        return None
    orientation = 1 if image.format == "TIFF" else orientation_of(image)
    try:
        ImageOps.exif_transpose(image)
    except Exception:  # noqa: BLE001  (as above)
        return 1
    return orientation


@pytest.mark.parametrize("kind", DECODED)
@pytest.mark.filterwarnings("ignore")
def test_orientation_that_an_engine_applies(kind: str) -> None:
    rng = random.Random(kind)
    turned = 0
    for number in range(10 * EXAMPLES):
        data = write(rng, kind)
        data = damage(rng, data) if number % 3 else data
        expected = by_vllm(data)
        if expected is not None:
            assert read_orientation(Image.open(io.BytesIO(data))) == expected, data
            turned += expected != 1
    assert (turned > EXAMPLES / 5) == (kind in {"JPEG", "PNG", "WEBP"})
