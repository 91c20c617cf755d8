"""Some kilobytes that stand for a million items, names or tokens: seconds of a core and gigabytes.

What a body stands for is counted before it is hashed; long answers are made in short turns.
"""

import asyncio
import json
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from mmhash.engines import vllm
from mmhash.errors import LimitError
from mmhash_service.api.problems import Problem
from mmhash_service.items.safetensors import parse_header
from mmhash_service.runtime.concurrency import TURN, end_turn
from tests.support.responses import refusal_of
from tests.support.victim import serving

ITEMS = 1000
# The first request of a service also takes memory for its threads and modules.
MEMORY = 200 << 20

SAFETENSORS = "application/x-safetensors"
BLOCKS: dict[str, Any] = {"engine": "vllm@0.33.0", "block_size": 1}


@pytest.fixture(scope="module")
def thousand() -> Iterator[Any]:
    with serving(max_items=ITEMS, work_timeout_s=120) as server:
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
    """A million items in 75 kB took 10 s and 2.5 GB."""
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


def empty_tensors(count: int) -> str:
    entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    return "{" + ",".join(f'"{number}":{entry}' for number in range(count)) + "}"


def repeated(value: str, count: int = 40_000) -> str:
    return "{" + ",".join(f'"{number}":{value}' for number in range(count)) + "}"


@pytest.mark.parametrize(
    "header",
    [
        repeated("1"),
        repeated("{}"),
        repeated("1.2345678901e10"),
        repeated("[[[[[[]]]]]]"),
        '{"":[' + ",".join(["[" * 12 + "]" * 12] * 40_000) + "]}",
        '{"":[' + ",".join(['{"":{"":{"":{}}}}'] * 40_000) + "]}",
        '{"":[' + ",".join(["1" * 4000] * 250) + "]}",
        '{"__metadata__":' + repeated('"x"') + "}",
        empty_tensors(9000),
    ],
    ids=["names", "objects", "floats", "lists", "deep", "nested", "digits", "metadata", "tensors"],
)
def test_headers_of_safetensors_are_bounded_before_they_are_parsed(header: str) -> None:
    """1 MB of brackets took the event loop 290 ms."""

    def seconds(text: str) -> float:
        def once() -> float:
            start = time.perf_counter()
            with suppress(Problem):
                parse_header(text.encode(), ITEMS)
            return time.perf_counter() - start

        return min(once() for _ in range(5))

    assert seconds(header) < 3 * seconds(empty_tensors(ITEMS))


def test_a_header_of_a_thousand_features_passes() -> None:
    entry = {"dtype": "U8", "shape": [0] * 7, "data_offsets": [0, 0]}
    header = {"__metadata__": {"a": "b"}, **dict.fromkeys(map(str, range(ITEMS)), entry)}
    assert len(parse_header(json.dumps(header).encode(), ITEMS)) == ITEMS


@pytest.mark.parametrize("names", [["sglang"] * 140, ["vllm", "sglang"] * 9])
def test_engines_are_counted(victim: Any, names: list[str]) -> None:
    """With 140 of them, an item of 90 bytes took 1.2 ms."""
    answer = victim.hash(b"abc", engines=",".join(names))
    assert refusal_of(answer) == "invalid-query"
    assert len(victim.hash(b"abc", engines="sglang,vllm").json()["items"][0]["engines"]) == 2


def test_long_answers_are_made_in_turns() -> None:
    """A thousand items with engines took the event loop 2 s."""

    async def count_turns() -> int:
        turns = 0
        is_done = False

        async def other() -> None:
            nonlocal turns
            while not is_done:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for count in range(10 * TURN):
            await end_turn(count)
        is_done = True
        await task
        return turns

    assert asyncio.run(count_turns()) >= 10


def test_a_lookahead_is_bounded_by_the_blocks_that_have_it(victim: Any) -> None:
    """300 kB took 4 s and 1.2 GB."""
    body = {**BLOCKS, "input_ids": [1] * 149_000, "lookahead": 1024}
    answer = victim.client.post("/blocks", json=body)
    assert refusal_of(answer) == "refused-by-engine"
    body = {**BLOCKS, "input_ids": [1] * 4000, "lookahead": 1024}
    assert len(victim.client.post("/blocks", json=body).json()["blocks"]) == 4000 - 1024
    body = {**BLOCKS, "input_ids": [1] * 149_000, "lookahead": 16}
    assert victim.client.post("/blocks", json=body).status_code == 200


def test_a_lookahead_of_a_short_body_is_bounded(victim: Any) -> None:
    """100 kB took 0.9 s."""
    body = {**BLOCKS, "input_ids": [1] * 50_000, "lookahead": 256}
    assert refusal_of(victim.client.post("/blocks", json=body)) == "refused-by-engine"


def test_the_blocks_of_groups_are_bounded(victim: Any) -> None:
    """100 kB had an answer of 19 MB."""
    body = {**BLOCKS, "input_ids": [1] * 50_000, "groups": list(range(1, 17))}
    answer = victim.client.post("/blocks", json=body)
    assert refusal_of(answer) == "refused-by-engine"
    body["groups"] = [1, 2, 4, 8, 16]
    groups = victim.client.post("/blocks", json=body).json()["groups"]
    assert [len(group["blocks"]) for group in groups] == [50_000, 25_000, 12_500, 6250, 3125]


def test_the_library_bounds_it_too() -> None:
    with pytest.raises(LimitError, match="lookahead"):
        vllm.block_keys([1] * 50_000, 1, lookahead=256)
