"""Items of equal bytes that are not equal: another dtype, shape, palette, cut, or a zero more.

Kind, dtype, shape, mode, palette and the number of bytes are in the frame that is hashed to a key.
"""

from io import BytesIO
from itertools import product
from typing import Any

from PIL import Image

import mmhash
from mmhash.dtypes import ITEM_SIZE
from mmhash.engines import sglang
from tests.support.responses import items_of


def keys(server: Any, *tensors: tuple[bytes, str, str]) -> set[str]:
    return {
        items_of(server.hash(content, dtype=dtype, shape=shape))[0]["key"]
        for content, dtype, shape in tensors
    }


def test_no_two_dtypes_meet(server: Any) -> None:
    twins = [(bytes(16), dtype, str(16 // size)) for dtype, size in ITEM_SIZE.items()]
    assert len(keys(server, *twins)) == len(twins)


def test_no_two_shapes_meet(server: Any) -> None:
    """SGLang and vLLM took 30x100 pixels for 100x30 (CVE-2025-46722)."""
    shapes = ["30,100", "100,30", "3000", "1,3000", "3000,1", "2,1500", "30,100,1"]
    assert len(keys(server, *((bytes(3000), "uint8", shape) for shape in shapes))) == len(shapes)


def test_no_two_empty_tensors_meet(server: Any) -> None:
    shapes = ["0", "0,4", "4,0", "0,0", "1,0", "2,0,3"]
    twins = [(b"", *each) for each in product(["uint8", "float16", "bool"], shapes)]
    assert len(keys(server, *twins)) == len(twins)


def test_zeros_at_the_end_count(server: Any) -> None:
    assert sglang.gpu_hash(bytes(63)) == sglang.gpu_hash(bytes(64))  # to SGLang they do not
    found = [items_of(server.hash(bytes(length)))[0] for length in (63, 64)]
    assert found[0]["digest"] != found[1]["digest"]
    assert found[0]["key"] != found[1]["key"]


def indexed(*palette: int, transparency: int | None = None) -> bytes:
    image, body = Image.new("P", (4, 4)), BytesIO()
    image.putpalette(palette)
    image.save(body, "PNG", transparency=transparency)
    return body.getvalue()


def test_palettes_count(server: Any) -> None:
    grey = BytesIO()
    Image.new("L", (4, 4)).save(grey, "PNG")
    twins = [
        indexed(0, 0, 0, 255, 0, 0),
        indexed(255, 0, 0, 0, 0, 0),
        indexed(0, 0, 0, 255, 0, 0, transparency=0),
        indexed(0, 0, 0, 255, 0, 0, transparency=1),
        grey.getvalue(),
    ]
    found = {items_of(server.hash(file, "image/png", of="pixels"))[0]["key"] for file in twins}
    assert len(found) == len(twins)


def test_the_parts_of_a_form_are_not_run_together(server: Any) -> None:
    def keys_of(*parts: bytes) -> list[str]:
        files = [("part", part) for part in parts]
        return [item["key"] for item in items_of(server.client.post("/hash", files=files))]

    assert not set(keys_of(b"ab", b"c")) & set(keys_of(b"a", b"bc"))
    assert keys_of(b"abc", b"") == keys_of(b"", b"abc")[::-1]


def test_no_two_ways_to_nest_the_same_bytes_are_one() -> None:
    a, b, c = b"a", b"b", b"c"
    twins: list[Any] = [
        b"abc", [b"abc"], [[b"abc"]], [b"ab", c], [a, b"bc"], [a, b, c], [[a, b], c], [a, [b, c]],
        [[a], [b], [c]], [a, b, c, b""], [a, b, c, []], [], [[]], [[], []],
    ]  # fmt: skip
    assert len({mmhash.key(twin).hex() for twin in twins}) == len(twins)
