"""All empty tensors are one to SGLang, so one of them can stand for another.

A key has dtype and shape, of which an empty tensor has as many as any other.
"""

from itertools import product
from typing import Any

import numpy as np

import mmhash
from tests.support.responses import items_of, refusal_of

SHAPES = [(0,), (0, 4), (4, 0), (0, 0), (1, 0), (2, 0, 3)]
DTYPES = ["uint8", "float16", "int64", "bool"]


def test_each_has_a_key_of_its_own() -> None:
    found = {
        mmhash.key(np.zeros(shape, dtype)).hex() for shape, dtype in product(SHAPES, DTYPES)
    } | {mmhash.key(b"").hex()}
    assert len(found) == len(SHAPES) * len(DTYPES) + 1


def test_the_service_has_the_same_keys(server: Any) -> None:
    for shape, dtype in product(SHAPES, DTYPES):
        query = {"dtype": dtype, "shape": ",".join(map(str, shape))}
        (item,) = items_of(server.hash(b"", **query))
        assert item["key"] == mmhash.key(np.zeros(shape, dtype)).hex()


def test_no_bytes_of_a_tensor_that_has_some_are_refused(server: Any) -> None:
    assert refusal_of(server.hash(b"", dtype="uint8", shape="1")) == "invalid-tensor"
    assert refusal_of(server.hash(b"", dtype="uint8", shape="")) == "invalid-tensor"
