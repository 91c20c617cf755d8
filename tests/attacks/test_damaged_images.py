"""Truncated images, and files that are not what their Content-Type claims.

An incomplete picture has no key. The bytes decide the format, not the Content-Type.
"""

from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from tests.support.responses import refusal_of

FORMATS = ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"]


def encoded(name: str) -> bytes:
    body = BytesIO()
    Image.radial_gradient("L").convert("RGB").save(body, name)
    return body.getvalue()


@pytest.mark.parametrize("name", FORMATS)
def test_a_truncated_image_is_refused(server: Any, name: str) -> None:
    body = encoded(name)
    for part in (0.02, 0.5, 0.9):
        answer = server.hash(body[: int(len(body) * part)], f"image/{name.lower()}", of="pixels")
        assert refusal_of(answer) == "damaged-media"


@pytest.mark.parametrize(
    "body",
    [
        b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n(id) run",
        b"%PDF-1.7\n",
        b"\0\0\0\x0cjP  \r\n\x87\n",
        b"8BPS\0\1" + bytes(30),
        b"P6\n1 1\n255\nabc",
        b"\x80\x04\x95cposix\nsystem\n.",
    ],
    ids=["svg", "eps", "pdf", "jp2", "psd", "ppm", "pickle"],
)
def test_another_format_is_refused(server: Any, body: bytes) -> None:
    assert refusal_of(server.hash(body, "image/png", of="pixels")) == "damaged-media"
