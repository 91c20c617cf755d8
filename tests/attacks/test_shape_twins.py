"""Two pictures of one key: 30x100 pixels whose bytes are those of 100x30 (CVE-2025-46722).

The shape is in the frame that is hashed to a key, so only the digests of such twins are one.
"""

from typing import Any

import numpy as np
import pytest
from PIL import Image

import mmhash
from tests.support.responses import items_of, refusal_of

SHAPES = [(30, 100), (100, 30), (3000,), (1, 3000), (3000, 1), (2, 1500), (30, 100, 1)]


def test_arrays_of_equal_bytes_and_other_shapes_have_other_keys() -> None:
    content = np.arange(3000, dtype=np.uint8)
    keys = {mmhash.key(content.reshape(shape)).hex() for shape in SHAPES}
    assert len(keys) == len(SHAPES)
    assert len({mmhash.digest(content.reshape(shape)) for shape in SHAPES}) == 1


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "1"])
def test_images_of_equal_bytes_and_other_sizes_have_other_keys(mode: str) -> None:
    flat = Image.new(mode, (24, 104))
    tall = Image.frombytes(mode, (104, 24), flat.tobytes())
    assert mmhash.key(flat) != mmhash.key(tall)


def test_the_service_tells_them_apart(server: Any) -> None:
    content, keys = bytes(3000), set()
    for shape in SHAPES:
        query = {"dtype": "uint8", "shape": ",".join(map(str, shape))}
        keys.add(items_of(server.hash(content, **query))[0]["key"])
    assert len(keys) == len(SHAPES)


def test_a_shape_that_the_bytes_do_not_fill_is_refused(server: Any) -> None:
    for shape in ("30,99", "31,100", "3001", "9223372036854775807,9223372036854775807"):
        assert refusal_of(server.hash(bytes(3000), dtype="uint8", shape=shape)) == "invalid-tensor"
