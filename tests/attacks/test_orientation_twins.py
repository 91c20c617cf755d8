"""Two files with equal pixels and different EXIF orientations, which engines turn into two pictures.

For engines that may apply the orientation the name covers it, unlike the key. A tag is for that name.
"""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import mmhash
from tests.attacks.conftest import TAG_SECRET

APPLIES = ["vllm@0.24.0", "vllm@0.32.0"]
MAY_APPLY = ["sglang@0.5.23", "trtllm@1.4.0rc1", "dynamo@1.6.1"]
DOES_NOT_APPLY = ["vllm@0.18.0", "vllm@0.23.0"]


def photo(form: str, orientation: int) -> bytes:
    """One picture; `orientation` is in the file's EXIF, also if it is 1."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = np.arange(24 * 16 * 3, dtype=np.uint8).reshape(16, 24, 3)
    file = BytesIO()
    options = {"lossless": True} if form == "WEBP" else {}
    Image.fromarray(pixels).save(file, form, exif=exif, **options)
    return file.getvalue()


def named(server: Any, content: bytes, engines: list[str], **query: Any) -> dict[str, Any]:
    """The item of `/hash`, by its pixels."""
    query = {"of": "pixels", "engines": ",".join(engines), **query}
    answer = server.hash(content, "image/x-any", **query)
    assert answer.status_code == 200, answer.text
    (item,) = answer.json()["items"]
    return item  # type: ignore[no-any-return]


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_the_twins_have_one_key_and_two_names(server: Any, form: str) -> None:
    upright, turned = photo(form, 1), photo(form, 6)
    assert mmhash.key(Image.open(BytesIO(upright))) == mmhash.key(Image.open(BytesIO(turned)))
    for _ in range(2):  # decoded, and from the memo
        first = named(server, upright, [*APPLIES, *MAY_APPLY, *DOES_NOT_APPLY])
        second = named(server, turned, [*APPLIES, *MAY_APPLY, *DOES_NOT_APPLY])
        assert first["key"] == second["key"]
        for engine in (*APPLIES, *MAY_APPLY):
            assert first["engines"][engine] != second["engines"][engine]
        for engine in DOES_NOT_APPLY:
            assert first["engines"][engine] == second["engines"][engine]
    assert second["memo"] == "hit"
    assert "exif_orientation" not in first
    assert second["exif_orientation"] == 6


def test_a_tag_is_for_the_name_and_not_for_the_key(signing: Any) -> None:
    turned = named(signing, photo("PNG", 6), ["vllm@0.32.0"], sign=1)
    uuid = mmhash.Digest("blake3", bytes.fromhex(turned["engines"]["vllm@0.32.0"]["uuid"]))
    secrets = [bytes.fromhex(TAG_SECRET)]
    mmhash.verify_tag(turned["tag"], uuid, engine="vllm", secrets=secrets)
    key = mmhash.Digest("blake3", bytes.fromhex(turned["key"]))
    with pytest.raises(mmhash.MMHashError, match="another key"):
        mmhash.verify_tag(turned["tag"], key, engine="vllm", secrets=secrets)


def test_the_names_follow_what_pillow_applies(server: Any) -> None:
    """Damaged EXIF counts as none, as in engines; a TIFF is turned by Pillow, so its key differs."""
    plain = named(server, photo("PNG", 1), ["vllm"])["engines"]["vllm"]
    for value in (b"", b"Exif\0\0MM", b"II*\0\xff\xff\xff\xff"):
        file = BytesIO()
        Image.open(BytesIO(photo("PNG", 1))).save(file, "PNG", exif=value or None)
        assert named(server, file.getvalue(), ["vllm"])["engines"]["vllm"] == plain
    upright, turned = (named(server, photo("TIFF", each), ["vllm"]) for each in (1, 6))
    assert upright["key"] != turned["key"]
    assert "exif_orientation" not in turned
    assert turned["engines"]["vllm"]["uuid"] == turned["key"]
    seen = ImageOps.exif_transpose(Image.open(BytesIO(photo("PNG", 6))))
    assert mmhash.key(seen).hex() == turned["key"]
