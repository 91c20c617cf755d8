"""A few kilobytes of PNG that decode to gigabytes: in pixels, in text, in a colour profile.

Width and height are weighed before a pixel is decoded, and Pillow bounds what its chunks unpack to.
"""

import struct
import zlib
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from tests.support.deflate import deflated_zeros
from tests.support.responses import items_of, refusal_of

MIB = 1 << 20


def chunk(name: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
    )


def png(width: int, height: int, *chunks: bytes, data: bytes | None = None) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    if data is None:
        data = zlib.compress(b"".join(b"\0" + bytes(width) for _ in range(min(height, 4))), 9)
    tail = chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + tail


ZEROS = deflated_zeros(256)


@pytest.mark.parametrize(
    ("width", "height"),
    [(50_000, 50_000), (2**31 - 1, 2**31 - 1), (2**31 - 1, 1), (1, 2**31 - 1), (641, 480)],
)
def test_pixels_beyond_the_limit_are_refused_by_the_head(
    server: Any, width: int, height: int
) -> None:
    before = server.memory()
    assert (
        refusal_of(
            server.hash(png(width, height, data=zlib.compress(b"\0")), "image/png", of="pixels")
        )
        == "image-too-large"
    )
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
    assert refusal_of(server.hash(png(4, 4, bomb), "image/png", of="pixels")) == "damaged-image"
    assert server.memory() - before < 128 * MIB


def test_pixels_that_unpack_to_more_than_the_head_says_are_not_unpacked(server: Any) -> None:
    before = server.memory()
    (item,) = items_of(server.hash(png(4, 4, data=deflated_zeros(512)), "image/png", of="pixels"))
    assert item["nbytes"] == 16
    assert server.memory() - before < 64 * MIB


def test_frames_beyond_the_limit_are_refused(server: Any) -> None:
    body = BytesIO()
    frames = [Image.new("L", (320, 240), shade) for shade in range(10)]
    frames[0].save(body, "PNG", save_all=True, append_images=frames[1:])
    assert refusal_of(server.hash(body.getvalue(), "image/png", of="pixels")) == "image-too-large"


def test_a_claim_of_a_billion_frames_is_none(server: Any) -> None:
    claim = chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0))
    assert refusal_of(server.hash(png(4, 4, claim), "image/png", of="pixels")) == "damaged-image"
