"""A few kilobytes that stand for a million items, names or tokens, to cost CPU and gigabytes.

The service counts what a body stands for before hashing it.
"""

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.responses import refusal_of
from tests.support.victim import serving

ITEMS = 1000
# The first request of a service also takes memory for its threads and modules.
MEMORY = 200 << 20

SAFETENSORS = "application/x-safetensors"
BLOCKS: dict[str, Any] = {"engine": "vllm@0.33.0", "block_size": 1}


@pytest.fixture(scope="module")
def thousand() -> Iterator[Any]:
    with serving(timeout_s=120) as server:
        yield server


@pytest.fixture
def victim(thousand: Any) -> Iterator[Any]:
    before = thousand.memory()
    yield thousand
    assert thousand.memory() < before + MEMORY
    thousand.assert_well()


def bundle(**split: Any) -> dict[str, Any]:
    return {"kind": "tensor", "dtype": "uint8", "shape": [ITEMS, 0], "data": "", **split}


@pytest.mark.parametrize(
    "split",
    [{"counts": ITEMS}, {"counts": [1] * ITEMS}, {"grids": [[1, 1]] * ITEMS}],
    ids=["a number", "counts", "grids"],
)
def test_bundles_are_counted_before_they_are_hashed(victim: Any, split: dict[str, Any]) -> None:
    repeats = ITEMS if split == {"counts": ITEMS} else 20
    assert refusal_of(victim.hash_json(*[bundle(**split)] * repeats)) == "too-many-items"
    answer = victim.hash_json(bundle(**split))
    assert len(answer.json()["items"]) == ITEMS


def safetensors(tensors: int) -> bytes:
    entry = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({str(number): entry for number in range(tensors)}).encode()
    return struct.pack("<Q", len(header)) + header


def form(*parts: bytes) -> bytes:
    head = f'--B\r\nContent-Disposition: form-data; name="a"\r\nContent-Type: {SAFETENSORS}\r\n\r\n'
    return b"".join(head.encode() + part + b"\r\n" for part in parts) + b"--B--\r\n"


def test_the_tensors_of_all_parts_are_counted(victim: Any) -> None:
    kind = "multipart/form-data; boundary=B"
    answer = victim.hash(form(*[safetensors(ITEMS)] * 40), kind)
    assert refusal_of(answer) == "too-many-items"
    answer = victim.hash(form(safetensors(ITEMS // 2), safetensors(ITEMS // 2 + 1)), kind)
    assert refusal_of(answer) == "too-many-items"
    answer = victim.hash(form(safetensors(1), safetensors(ITEMS - 1)), kind)
    assert len(answer.json()["items"]) == ITEMS


@pytest.mark.parametrize("names", [["sglang"] * 140, ["vllm", "sglang"] * 9])
def test_engines_are_counted(victim: Any, names: list[str]) -> None:
    answer = victim.hash(b"abc", engines=",".join(names))
    assert refusal_of(answer) == "invalid-query"
    assert len(victim.hash(b"abc", engines="sglang,vllm").json()["items"][0]["engines"]) == 2


def test_a_lookahead_is_bounded_by_the_blocks_that_have_it(victim: Any) -> None:
    body = {**BLOCKS, "input_ids": [1] * 149_000, "lookahead": 1024}
    answer = victim.client.post("/blocks", json=body)
    assert refusal_of(answer) == "refused-by-engine"
    body = {**BLOCKS, "input_ids": [1] * 4000, "lookahead": 1024}
    assert len(victim.client.post("/blocks", json=body).json()["blocks"]) == 4000 - 1024
    body = {**BLOCKS, "input_ids": [1] * 149_000, "lookahead": 16}
    assert victim.client.post("/blocks", json=body).status_code == 200
