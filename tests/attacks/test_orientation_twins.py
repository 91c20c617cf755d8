"""Two files of equal pixels and other EXIF orientations: the engine sees two pictures.

Engines that may apply it get a name that covers it, unlike the key; a tag is for that name only.
"""

import base64
import json
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import mmhash
from mmhash.engines.options import with_options
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


def annotated(server: Any, content: bytes, engine: str, **options: Any) -> tuple[str, Any]:
    """The uuid in the request that `/annotate` returns, and its answer."""
    url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}}
    body = {"messages": [{"role": "user", "content": [part]}], **options}
    answer = server.client.post("/annotate", params={"engine": engine, "of": "pixels"}, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["request"]["messages"][0]["content"][0]["uuid"], answer.json()


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


def test_every_orientation_has_a_name_of_its_own(server: Any) -> None:
    names = set()
    for orientation in range(1, 9):
        item = named(server, photo("PNG", orientation), ["vllm"])
        assert item["engines"]["vllm"] == mmhash.engines.request_fields(
            mmhash.Digest("blake3", bytes.fromhex(item["key"])),
            "vllm",
            exif_orientation=orientation,
        )
        names.add(item["engines"]["vllm"]["uuid"])
    assert len(names) == 8


@pytest.mark.parametrize("options", [{}, {"media_io_kwargs": {"video": {"num_frames": 2}}}])
def test_annotate_names_the_twins_as_hash_does(server: Any, options: dict[str, Any]) -> None:
    uuids = {}
    for orientation in (1, 6):
        content = photo("JPEG", orientation)
        uuids[orientation], answer = annotated(server, content, "vllm@0.32.0", **options)
        item = named(server, content, ["vllm@0.32.0"])
        assert answer["items"][0]["key"] == item["key"]
        if not options:
            assert uuids[orientation] == item["engines"]["vllm@0.32.0"]["uuid"]
    assert uuids[1] != uuids[6]
    text = (
        '{"exif_orientation":6,' + json.dumps(options)[1:] if options else '{"exif_orientation":6}'
    )
    key = mmhash.Digest("blake3", bytes.fromhex(item["key"]))
    assert uuids[6] == with_options(key, text.replace(" ", "")).hex()
    older = [annotated(server, photo("JPEG", each), "vllm@0.23.0", **options)[0] for each in (1, 6)]
    assert older[0] == older[1]


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


def test_an_animation_is_named_by_its_first_frame(server: Any) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    frames = [Image.new("RGB", (24, 16), (level, 0, 0)) for level in (0, 99, 200)]
    for form in ("PNG", "WEBP", "MPO"):
        names = []
        for chosen in (None, exif):
            file = BytesIO()
            options = {} if chosen is None else {"exif": chosen}
            frames[0].save(file, form, save_all=True, append_images=frames[1:], **options)
            names.append(named(server, file.getvalue(), ["vllm"]))
        assert names[0]["key"] == names[1]["key"]
        assert names[1]["exif_orientation"] == 6
        assert names[0]["engines"] != names[1]["engines"]
