"""Items of equal bytes that are not equal: another dtype, shape, palette, cut, or a zero more.

Kind, dtype, shape, mode, palette and the number of bytes are in the frame that is hashed to a key.
"""

import base64
from io import BytesIO
from itertools import product
from typing import Any

import pytest
from PIL import Image

import mmhash
from mmhash.dtypes import ITEM_SIZE
from mmhash.engines import sglang
from tests.support.responses import items_of, refusal_of


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


@pytest.mark.parametrize(
    ("content", "dtype", "shape", "problem"),
    [
        *((bytes(16), dtype, "1", "unknown-dtype") for dtype in ("object", "V8", "<f2", "")),
        *((bytes(16), dtype, "1", "unknown-dtype") for dtype in ("FLOAT16", "float16 ")),
        *((bytes(3000), "uint8", shape, "wrong-length") for shape in ("30,99", "31,100", "3001")),
        (bytes(3000), "uint8", "9223372036854775807,9223372036854775807", "wrong-length"),
        (b"", "uint8", "1", "wrong-length"),
        (b"", "uint8", "", "wrong-length"),
    ],
)
def test_what_is_no_tensor_is_refused(
    server: Any, content: bytes, dtype: str, shape: str, problem: str
) -> None:
    assert refusal_of(server.hash(content, dtype=dtype, shape=shape)) == problem


@pytest.mark.parametrize(
    "cut",
    [
        {"counts": [1, 2]},
        {"counts": [4, 1]},
        {"counts": [2**63 - 1, 5]},
        {"counts": 2**62},
        {"counts": 3},
        {"grids": [[1, 2], [2, 2]]},
        {"grids": [[2**62, 2**62, 16]]},
        {"counts": [4], "grids": [[2, 2]]},
    ],
)
def test_a_bundle_that_its_items_do_not_fill_is_refused(server: Any, cut: dict[str, Any]) -> None:
    data = base64.b64encode(bytes(8)).decode()
    item = {"kind": "tensor", "dtype": "uint8", "shape": [4, 2], "data": data, **cut}
    assert refusal_of(server.hash_json(item)) in {"invalid-bundle", "too-many-items"}
