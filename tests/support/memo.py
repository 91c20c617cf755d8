"""Images for tests of the memo, and requests for the keys of their pixels."""

from io import BytesIO
from typing import Any

import httpx
from PIL import Image


def hash_pixels(client: httpx.Client, image: bytes, **headers: str) -> dict[str, Any]:
    """Post an image for its pixels, and return the item."""
    headers = {"content-type": "image/png", **headers}
    answer = client.post("/hash", params={"of": "pixels"}, content=image, headers=headers)
    assert answer.status_code == 200, answer.text
    item: dict[str, Any]
    (item,) = answer.json()["items"]
    return item


def share_an_image(one: httpx.Client, two: httpx.Client, images: list[bytes]) -> bytes:
    """Return an image that one service decodes and the other then finds in its memo.

    On a busy machine some entries are stored too late, or not at all.
    """
    for image in images:
        missed, hit = hash_pixels(one, image), hash_pixels(two, image)
        assert missed.pop("memo") == "miss"
        status = hit.pop("memo")
        assert missed == hit
        if status == "hit":
            return image
    raise AssertionError("no entry was shared")


def small_images() -> list[bytes]:
    """Return small images, all different."""

    def image(number: int) -> bytes:
        body = BytesIO()
        Image.frombytes("RGB", (8, 8), number.to_bytes(192)).save(body, "PNG")
        return body.getvalue()

    return [image(number) for number in range(400)]
