import io
import struct
from typing import Any

import pytest
from PIL import ExifTags, Image
from PIL.PngImagePlugin import PngInfo

from mmhash import InputTypeError
from mmhash.prompts.headers import ImageHeader, ImageHeaderError, read_size
from tests.support.png import chunk


def write(kind: str, size: tuple[int, int] = (3, 5), turn: int | None = None, **more: Any) -> bytes:
    if turn is not None:
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = turn
        more["exif"] = exif
    buffer = io.BytesIO()
    Image.new("RGB", size).save(buffer, kind, **more)
    return buffer.getvalue()


@pytest.mark.parametrize("data", [None, "a.png", memoryview(b"abcd")[::2]])
def test_data_is_bytes(data: Any) -> None:
    with pytest.raises(InputTypeError, match="contiguous bytes"):
        read_size(data)


@pytest.mark.parametrize("order", ["<", ">"])
def test_tiff_in_either_byte_order(order: str) -> None:
    entries = [(256, 4, 1, 3), (257, 4, 1, 5)]
    magic = b"II*\0" if order == "<" else b"MM\0*"
    data = magic + struct.pack(order + "LH", 8, 2)
    data += b"".join(struct.pack(order + "HHLL", *entry) for entry in entries)
    assert read_size(data) == ImageHeader("TIFF", 3, 5)


def test_gif_frame_larger_than_the_screen() -> None:
    data = bytearray(write("GIF"))
    data[6:10] = struct.pack("<HH", 1, 1)
    assert read_size(data) == ImageHeader("GIF", 3, 5)


def test_bmp_with_rows_from_the_top() -> None:
    data = bytearray(write("BMP"))
    data[22:26] = struct.pack("<l", -5)
    assert read_size(data) == ImageHeader("BMP", 3, 5)


def test_png_orientation_after_the_image_data() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    end = chunk(b"IEND", b"")
    data = write("PNG").removesuffix(end) + chunk(b"eXIf", exif.tobytes()[6:]) + end
    assert read_size(data).orientation == 6
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert image.getexif()[ExifTags.Base.Orientation] == 6


def test_png_raw_profile() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 8
    text = exif.tobytes()
    info = PngInfo()
    info.add_text("Raw profile type exif", f"\nexif\n{len(text):8}\n{text.hex()}\n", zip=True)
    assert read_size(write("PNG", pnginfo=info)).orientation == 8


def test_xmp_counts_without_exif_orientation() -> None:
    xmp = b'<x tiff:Orientation="6"/>'
    assert read_size(write("JPEG", xmp=xmp)).orientation == 6
    assert read_size(write("JPEG", xmp=xmp, turn=3)).orientation == 3


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7", b"<svg/>", bytes(64)])
def test_another_format_is_a_named_error(data: bytes) -> None:
    with pytest.raises(ImageHeaderError, match="JPEG, PNG"):
        read_size(data)
