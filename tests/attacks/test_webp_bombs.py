"""A WebP that claims 16384x16384 pixels, or frames that it does not have.

Its header is checked before its first frame is decoded. A file that does not match it is damaged.
"""

import struct
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from tests.support.responses import refusal_of


def webp(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"WEBP" + b"".join(
        name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)
        for name, content in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def u24(number: int) -> bytes:
    return number.to_bytes(3, "little")


def animated(side: int) -> bytes:
    canvas = b"\x02\0\0\0" + u24(side - 1) * 2
    return webp((b"VP8X", canvas), (b"ANIM", bytes(6)), (b"ANMF", bytes(16) + b"VP8L\0\0\0\0"))


def lossless(side: int) -> bytes:
    return webp((b"VP8L", b"\x2f" + struct.pack("<I", (side - 1) | (side - 1) << 14) + bytes(16)))


def many_frames() -> bytes:
    body = BytesIO()
    frames = [Image.new("RGB", (320, 240), (shade, 0, 0)) for shade in range(10)]
    frames[0].save(body, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    return body.getvalue()


CASES = {
    "canvas": animated(16_384),
    "widest canvas": animated(1 << 24),
    "lossless": lossless(16_383),
    "small and damaged": lossless(16),
    "cut": many_frames()[:-10],
    "length": b"RIFF\xff\xff\xff\xff" + many_frames()[8:200],
}


@pytest.mark.parametrize("name", CASES)
def test_a_webp_bomb_is_refused(server: Any, name: str) -> None:
    before = server.memory()
    answer = server.hash(CASES[name], "image/webp", of="pixels")
    assert refusal_of(answer) in {"media-too-large", "damaged-media"}
    assert server.memory() - before < 64 << 20
