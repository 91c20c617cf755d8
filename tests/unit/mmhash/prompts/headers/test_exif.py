"""EXIF with a tag that cannot be written again: Pillow then leaves the image as it is stored.

So do the engines, which call `exif_transpose` and ignore its errors. A plan, and the key of the
pixels, count such an image as not turned.
"""

import io
import struct
import warnings
from typing import Any

import pytest
from PIL import Image, ImageOps

from mmhash.io.images import read_image_file
from mmhash.prompts.headers import ImageHeaderError, engine_size, read_size
from mmhash.prompts.headers.exif import MAX_TAGS

Entry = tuple[int, int, int, bytes]

TURN: Entry = (0x0112, 3, 1, b"\6\0")
ASCII = (2, 2, b"a\0")
RESOLUTION: Entry = (0x011A, *ASCII)  # a fraction, written as text
LATITUDE: Entry = (0x0002, *ASCII)


def directory(*entries: Entry) -> bytes:
    packed = (struct.pack("<HHL4s", *one[:3], one[3].ljust(4, b"\0")) for one in entries)
    return struct.pack("<H", len(entries)) + b"".join(packed) + bytes(4)


def exif(*entries: Entry, inner: tuple[Entry, ...] = (), pointer: int = 0x8825) -> bytes:
    """Return EXIF; `inner` is a directory behind a pointer."""
    head = b"II*\0" + struct.pack("<L", 8)
    if not inner:
        return head + directory(*entries)
    start = len(head + directory(*entries, TURN))
    points = (pointer, 4, 1, struct.pack("<L", start))
    return head + directory(*entries, points) + directory(*inner)


CASES = {
    "writable": (exif((0x010F, 2, 2, b"x\0"), TURN), True),
    "a maker as a number": (exif((0x010F, 3, 1, b"\5\0"), TURN), True),
    "a resolution as text": (exif(TURN, RESOLUTION), False),
    "a resolution as text before": (exif(RESOLUTION, TURN), False),
    "GPS": (exif(TURN, inner=(LATITUDE,)), False),
    "GPS that can be written": (exif(TURN, inner=((0x0001, 2, 2, b"N\0"),)), True),
    "the EXIF directory": (exif(TURN, inner=((0x0112, *ASCII), RESOLUTION), pointer=0x8769), None),
    "a pointer to nowhere": (exif(TURN, (0x8825, 4, 1, b"\xff\xff\0\0")), True),
    "a pointer to itself": (exif(TURN, (0x8825, 4, 1, b"\x08\0\0\0")), None),
}


def write(kind: str, content: bytes) -> bytes:
    file = io.BytesIO()
    image = Image.new("RGB", (30, 50))
    image.save(file, kind, exif=content if kind == "PNG" else b"Exif\0\0" + content)
    return file.getvalue()


def pillow_size(data: bytes) -> tuple[int, int]:
    """Return the size that vLLM's processor receives, as it computes it."""
    with Image.open(io.BytesIO(data)) as image:
        try:
            turned: Any = ImageOps.exif_transpose(image)
        except Exception:  # noqa: BLE001  (as in vLLM)
            return image.size
        return turned.size


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("case", CASES)
def test_a_plan_and_a_key_turn_an_image_as_pillow_does(kind: str, case: str) -> None:
    content, is_turned = CASES[case]
    data = write(kind, content)
    header = read_size(data)
    size = pillow_size(data)
    assert engine_size(header, "vllm", "0.33.0") == size
    assert (
        header.orientation == read_image_file(io.BufferedReader(io.BytesIO(data))).exif_orientation
    )
    assert engine_size(header, "sglang", "0.5.23") == (30, 50)
    if is_turned is not None:
        assert size == ((50, 30) if is_turned else (30, 50))


@pytest.mark.parametrize("extra", [(), (RESOLUTION,), ((0x010F, 3, 1, b"\5\0"),)])
def test_a_tiff_is_turned_by_its_own_tag(extra: tuple[Entry, ...]) -> None:
    def tiff(start: int) -> bytes:
        numbers = {256: 4, 257: 2, 258: 8, 259: 1, 262: 1, 273: start, 277: 1, 278: 2, 279: 8}
        known = [(tag, 4, 1, struct.pack("<L", value)) for tag, value in numbers.items()]
        return exif(*sorted([*known, TURN, *extra]))

    data = tiff(len(tiff(0))) + bytes(8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        size = pillow_size(data)
    assert size == (2, 4)
    assert engine_size(read_size(data), "vllm", "0.33.0") == size
    assert engine_size(read_size(data), "sglang", "0.5.23") == size


def test_more_tags_than_can_be_checked_are_refused() -> None:
    """Pillow reads each by itself: those of one image would keep a thread for seconds."""
    many = [(0x1000 + number, 3, 1, b"\5\0") for number in range(MAX_TAGS)]
    for content in (
        exif(TURN, *many),
        exif(TURN, inner=tuple(many)),
        exif(TURN, inner=tuple(many), pointer=0x8769),
    ):
        with pytest.raises(ImageHeaderError, match="tags"):
            read_size(write("PNG", content))
    few = exif(TURN, *many[:100])
    assert read_size(write("PNG", few)).orientation == 6
    assert read_size(write("PNG", exif(*many))).orientation == 1  # nothing to turn
