"""Responses as results: what the service writes becomes what callers use."""

import json
from typing import Any

import mmhash
from mmhash.client import Blocks, PlannedPrompt, Span
from mmhash.client.results import read_blocks, read_items, read_plan

KEY, SHORT = mmhash.key(b"x"), mmhash.digest(b"x", algorithm="xxh3")
BLOCKS: dict[str, Any] = {"blocks": ["ab" * 32], "event_ids": [1]}


def test_a_plan_has_spans_with_keys() -> None:
    payload = BLOCKS | {
        "token_ids": [1, 2, 3],
        "items": [{"modality": "image"}],
        "spans": [{"start": 0, "end": 2, "key": KEY.hex()}],
        "request": {"n": 2**70, "x": 1.5},
    }
    assert read_plan(json.dumps(payload).encode()) == PlannedPrompt(
        token_ids=[1, 2, 3],
        items=[{"modality": "image"}],
        spans=[Span(0, 2, KEY)],
        blocks=["ab" * 32],
        event_ids=[1],
        request={"n": 2**70, "x": 1.5},
    )


def test_blocks_have_their_groups_by_size() -> None:
    payload = BLOCKS | {"groups": [BLOCKS | {"block_size": 16}], "recipe": "vllm@0.33.0"}
    group = Blocks(["ab" * 32], [1])
    assert read_blocks(json.dumps(payload).encode()) == Blocks(
        ["ab" * 32], [1], {16: group}, "vllm@0.33.0"
    )


def test_an_item_has_digests() -> None:
    item = {
        "kind": "list",
        "dtype": "",
        "shape": [1],
        "nbytes": 1,
        "algorithm": "xxh3",
        "digest": SHORT.hex(),
        "key": KEY.hex(),
        "frames": [KEY.hex()],
        "exif_orientation": 6,
    }
    body = json.dumps({"items": [item]}).encode()
    (found,) = read_items(body)
    assert (found.digest, found.key, found.frames) == (SHORT, KEY, (KEY,))
    assert (found.name, found.shape, found.exif_orientation) == (None, (1,), 6)
