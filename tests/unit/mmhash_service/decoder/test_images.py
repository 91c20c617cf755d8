"""Decoded images equal the library's view in every format; damaged files and bombs are refused."""

import struct
from io import BytesIO

import pytest
from PIL import GifImagePlugin, Image, ImageFile, PngImagePlugin

import mmhash
from mmhash.image import FORMATS, PILLOW_MAX_PIXELS, read_image, read_orientation
from mmhash_service.decoder import images
from mmhash_service.decoder.images import decode_image
from mmhash_service.decoder.messages import Decoded, Refused
from tests.support.images import encode_noise

ENOUGH = 1 << 20

CASES = [
    *[(name, "RGB", 1) for name in FORMATS],
    ("JPEG", "L", 1),
    ("JPEG", "CMYK", 1),
    ("PNG", "RGBA", 1),
    ("PNG", "P", 1),
    ("PNG", "I;16", 1),
    ("PNG", "RGBA", 3),
    ("WEBP", "RGBA", 3),
    ("GIF", "P", 1),
    ("GIF", "RGB", 3),
    ("TIFF", "1", 1),
    ("TIFF", "RGB", 3),
    ("MPO", "RGB", 2),
]


def refusal(body: bytes, max_pixels: int = ENOUGH) -> str:
    answer = decode_image(body, "blake3", max_pixels)
    assert isinstance(answer, Refused)
    return answer.problem


def decoded(body: bytes, max_pixels: int = ENOUGH, algorithm: str = "blake3") -> Decoded:
    answer = decode_image(body, algorithm, max_pixels)
    assert isinstance(answer, Decoded), answer
    return answer


def of_library(body: bytes, algorithm: str = "blake3") -> Decoded:
    """Decode and hash the same image by the library."""
    with Image.open(BytesIO(body)) as image:
        frames, pixels, extra = read_image(image)
    digest = mmhash.digest(pixels, algorithm=algorithm)
    with Image.open(BytesIO(body)) as image:
        orientation = read_orientation(image)
    return Decoded(frames, len(pixels), digest.bytes, extra, orientation)


def gif_frame(left: int, top: int, width: int, height: int) -> bytes:
    """A GIF frame in one colour of the global palette: a clear code, pixels, an end code."""
    codes = [4, *[0] * (width * height), 5]
    bits = sum(code << (3 * at) for at, code in enumerate(codes))
    data = bits.to_bytes(-(-3 * len(codes) // 8), "little")
    head = struct.pack("<BHHHHB", 0x2C, left, top, width, height, 0)
    return head + b"\x02" + bytes([len(data)]) + data + b"\0"


def gif_of(*frames: bytes) -> bytes:
    head = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    return head + b"".join(frames) + b";"


@pytest.mark.parametrize(("name", "mode", "frames"), CASES)
def test_the_view_is_the_library_s(name: str, mode: str, frames: int) -> None:
    body = encode_noise(name, mode, frames=frames)
    for algorithm in ("blake3", "xxh3"):
        assert decoded(body, algorithm=algorithm) == of_library(body, algorithm)


@pytest.mark.parametrize(("name", "mode", "frames"), CASES)
def test_the_limit_counts_the_pixels_of_all_frames(name: str, mode: str, frames: int) -> None:
    body = encode_noise(name, mode, size=(16, 12), frames=frames)
    assert decoded(body, frames * 16 * 12).frames == frames
    assert refusal(body, frames * 16 * 12 - 1) == "media-too-large"


def test_frames_of_unlike_size_are_counted_as_they_are() -> None:
    body = BytesIO()
    Image.new("L", (1, 1)).save(
        body, "TIFF", save_all=True, append_images=[Image.new("L", (100, 100))]
    )
    assert decoded(body.getvalue(), 10_001).frames == 2
    assert refusal(body.getvalue(), 10_000) == "media-too-large"


def test_the_number_of_frames_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_FRAMES", 20)
    frame = gif_frame(0, 0, 1, 1)
    assert decoded(gif_of(*[frame] * 20)).frames == 20
    assert refusal(gif_of(*[frame] * 21)) == "media-too-large"


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16", "CMYK", "F"])
def test_a_large_image_in_bands_has_the_digest_of_a_whole_one(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    body = encode_noise("TIFF", mode, size=(37, 53))
    whole = of_library(body)
    for pixels in (1, 37 * 53, 37 * 10, 37 * 53 - 1):
        monkeypatch.setattr(images, "_BAND_PIXELS", pixels)
        assert decoded(body) == whole


def test_limits_grow_frame_by_frame_before_the_frame_is_decoded() -> None:
    met: list[tuple[int, int]] = []
    body = encode_noise("TIFF", "RGB", size=(10, 10), frames=3)
    decode_image(body, "blake3", ENOUGH, lambda frames, pixels: met.append((frames, pixels)))
    assert met == [(1, 100), (2, 200), (3, 300)]


def test_pillow_s_switches_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    monkeypatch.setattr(PngImagePlugin, "MAX_TEXT_CHUNK", 1 << 40)
    monkeypatch.setattr(PngImagePlugin, "MAX_TEXT_MEMORY", 1 << 40)
    strategy = GifImagePlugin.LoadingStrategy
    monkeypatch.setattr(GifImagePlugin, "LOADING_STRATEGY", strategy.RGB_ALWAYS)
    images.pin_pillow()
    assert not ImageFile.LOAD_TRUNCATED_IMAGES
    assert Image.MAX_IMAGE_PIXELS == PILLOW_MAX_PIXELS
    assert PngImagePlugin.MAX_TEXT_CHUNK == 1 << 20
    assert PngImagePlugin.MAX_TEXT_MEMORY == 64 << 20
    assert GifImagePlugin.LOADING_STRATEGY is strategy.RGB_AFTER_FIRST


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("form", ["PNG", "WEBP", "MPO"])
def test_the_orientation_is_that_of_the_first_frame(form: str, frames: int) -> None:
    file = BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 8
    pictures = [Image.new("RGB", (5, 4), (level, 0, 0)) for level in range(frames)]
    pictures[0].save(file, form, save_all=True, append_images=pictures[1:], exif=exif)
    assert decoded(file.getvalue()).orientation == 8
    assert decoded(file.getvalue()) == of_library(file.getvalue())
