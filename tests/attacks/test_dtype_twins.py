"""A tensor whose bytes are another's in another dtype: int16 0x3C00 is float16 1.0.

The dtype's name is in the frame, and a name that the spec does not have is refused.
"""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash.dtypes import ITEM_SIZE
from tests.support.responses import items_of, refusal_of


def test_no_two_dtypes_meet(server: Any) -> None:
    keys = {}
    for dtype, size in ITEM_SIZE.items():
        query = {"dtype": dtype, "shape": str(16 // size)}
        keys[dtype] = items_of(server.hash(bytes(16), **query))[0]["key"]
    for one, other in combinations(keys, 2):
        assert keys[one] != keys[other]


def test_equal_bytes_read_otherwise_are_another_item() -> None:
    content = np.ones(8, np.float16)
    for dtype in (np.int16, np.uint16, np.uint8):
        assert mmhash.key(content) != mmhash.key(content.view(dtype))


@pytest.mark.parametrize(
    "dtype",
    ["object", "O", "V8", "<f2", "float", "FLOAT16", "float16 ", "complex256", "datetime64", ""],
)
def test_what_is_no_dtype_of_the_spec_is_refused(server: Any, dtype: str) -> None:
    answer = server.hash(bytes(16), dtype=dtype, shape="1")
    assert refusal_of(answer) == "invalid-tensor"


@pytest.mark.parametrize("dtype", ["O", "V8", "U4", "S4", "datetime64[s]"])
def test_the_library_takes_no_array_whose_elements_are_no_numbers(dtype: str) -> None:
    with pytest.raises(mmhash.MMHashError):
        mmhash.key(np.zeros(2, dtype))
