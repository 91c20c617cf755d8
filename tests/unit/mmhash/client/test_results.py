"""Responses as results: what the service writes becomes what callers use."""

import json
from typing import Any

from mmhash.client import Blocks
from mmhash.client.results import read_blocks

BLOCKS: dict[str, Any] = {"blocks": ["ab" * 32], "event_ids": [1]}


def test_blocks_have_their_groups_by_size() -> None:
    payload = BLOCKS | {"groups": [BLOCKS | {"block_size": 16}], "recipe": "vllm@0.33.0"}
    group = Blocks(["ab" * 32], [1])
    assert read_blocks(json.dumps(payload).encode()) == Blocks(
        ["ab" * 32], [1], {16: group}, "vllm@0.33.0"
    )
