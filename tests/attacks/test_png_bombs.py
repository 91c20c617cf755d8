"""A few kilobytes of PNG that decode to gigabytes: in pixels, in text, in a colour profile.

Width and height are checked before a pixel is decoded, and Pillow bounds what chunks unpack to.
"""

import struct
import zlib
from typing import Any

import pytest

from tests.support.deflate import deflated_zeros
from tests.support.png import chunk, png
from tests.support.responses import items_of, refusal_of

MIB = 1 << 20
ZEROS = deflated_zeros(256)
PIXELS = zlib.compress(bytes(5 * 4), 9)
"""Four rows of four pixels, each row behind its filter."""


def png_of(data: bytes, *chunks: bytes, size: tuple[int, int] = (4, 4)) -> bytes:
    return png(*size, *chunks, chunk(b"IDAT", data))


@pytest.mark.parametrize(
    ("width", "height"),
    [(50_000, 50_000), (2**31 - 1, 2**31 - 1), (2**31 - 1, 1), (1, 2**31 - 1), (641, 480)],
)
def test_pixels_beyond_the_limit_are_refused_by_the_head(
    server: Any, width: int, height: int
) -> None:
    before = server.memory()
    large = png_of(zlib.compress(b"\0"), size=(width, height))
    assert refusal_of(server.hash(large, "image/png", of="pixels")) == "media-too-large"
    assert server.memory() - before < 64 * MIB


@pytest.mark.parametrize(
    "bomb",
    [
        chunk(b"zTXt", b"a\0\0" + ZEROS),
        chunk(b"iTXt", b"a\0\1\0\0\0" + ZEROS),
        chunk(b"iCCP", b"a\0\0" + ZEROS),
        chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(MIB // 2), 9)) * 200,
    ],
    ids=["zTXt", "iTXt", "iCCP", "many zTXt"],
)
def test_a_chunk_that_unpacks_to_megabytes_is_refused(server: Any, bomb: bytes) -> None:
    before = server.memory()
    image = png_of(PIXELS, bomb)
    assert refusal_of(server.hash(image, "image/png", of="pixels")) == "damaged-media"
    assert server.memory() - before < 128 * MIB


def test_pixels_that_unpack_to_more_than_the_head_says_are_not_unpacked(server: Any) -> None:
    before = server.memory()
    (item,) = items_of(server.hash(png_of(deflated_zeros(512)), "image/png", of="pixels"))
    assert item["nbytes"] == 16
    assert server.memory() - before < 64 * MIB


def test_a_claim_of_a_billion_frames_is_refused(server: Any) -> None:
    claim = chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0))
    answer = server.hash(png_of(PIXELS, claim), "image/png", of="pixels")
    assert refusal_of(answer) == "damaged-media"
