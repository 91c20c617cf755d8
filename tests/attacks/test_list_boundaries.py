"""Bytes moved from one item to the next: ["ab", "c"] against ["a", "bc"], nested lists, other cuts.

A list's key is made of its parts' keys and their number, and a bundle is cut only where it is said.
"""

import base64
from typing import Any

import pytest

import mmhash
from tests.support.responses import items_of, refusal_of


def test_items_are_not_run_together(server: Any) -> None:
    def keys(*parts: bytes) -> list[str]:
        files = [("part", part) for part in parts]
        return [item["key"] for item in items_of(server.client.post("/hash", files=files))]

    assert keys(b"ab", b"c") != keys(b"a", b"bc")
    assert not set(keys(b"ab", b"c")) & set(keys(b"a", b"bc"))
    assert keys(b"abc", b"") == keys(b"", b"abc")[::-1]


def test_no_two_ways_to_nest_the_same_bytes_are_one() -> None:
    a, b, c = b"a", b"b", b"c"
    twins: list[Any] = [
        b"abc",
        [b"abc"],
        [[b"abc"]],
        [b"ab", c],
        [a, b"bc"],
        [a, b, c],
        [[a, b], c],
        [a, [b, c]],
        [[a], [b], [c]],
        [a, b, c, b""],
        [a, b, c, []],
        [],
        [[]],
        [[], []],
    ]
    assert len({mmhash.key(twin).hex() for twin in twins}) == len(twins)


def test_lists_nested_too_deeply_are_refused() -> None:
    deep: Any = b"abc"
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(mmhash.MMHashError):
        mmhash.key(deep)


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
    assert refusal_of(server.hash_json(item)) in {"invalid-tensor", "too-many-items"}


def test_bundles_of_more_items_than_a_body_may_have_are_refused(server: Any) -> None:
    data = base64.b64encode(bytes(30)).decode()
    item = {"kind": "tensor", "dtype": "uint8", "shape": [30], "data": data, "counts": 30}
    assert refusal_of(server.hash_json(item, item)) == "too-many-items"
