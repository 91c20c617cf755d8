"""KV events as engines publish them, and anything else that arrives on the wire."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmhash.errors import InputTypeError, InputValueError
from mmhash.kvindex import BlocksRemoved, BlocksStored, CacheCleared, parse_batch
from tests.support.kv_publisher import NO_BATCHES, encode

STORED = {
    "type": "BlockStored",
    "block_hashes": [1, 2],
    "parent_block_hash": None,
    "token_ids": [5, 6, 7, 8],
    "block_size": 2,
    "lora_id": None,
    "medium": "GPU",
    "lora_name": None,
    "extra_keys": [None, [["key", -3]]],
    "group_idx": 0,
    "session_id": "s",
}


@pytest.mark.parametrize("payload", [None, "batch", [1.0, []], 5])
def test_a_payload_is_bytes(payload: Any) -> None:
    kind = type(payload).__name__
    with pytest.raises(InputTypeError, match=f"^payload is bytes, not {kind}$"):
        parse_batch(payload)


def test_maps_and_arrays_give_the_same_event() -> None:
    array = ["BlockStored", [1, 2], None, [5, 6, 7, 8], 2, None, "GPU", None, [None, [["key", -3]]]]
    (of_map,) = parse_batch(encode(STORED)).events
    (of_array,) = parse_batch(encode(array)).events
    assert isinstance(of_map, BlocksStored)
    assert of_map == BlocksStored(
        [1, 2], None, [5, 6, 7, 8], 2, "GPU", None, [None, [["key", -3]]], 0
    )
    assert of_array == of_map._replace(group=None)


def test_an_array_of_an_older_release_is_shorter() -> None:
    (event,) = parse_batch(encode(["BlockStored", [b"\1" * 32], b"\2" * 32, [5], 1, None])).events
    assert event == BlocksStored([b"\1" * 32], b"\2" * 32, [5], 1, None, None, None, None)


def test_removed_and_cleared() -> None:
    batch = parse_batch(
        encode(
            {"type": "BlockRemoved", "block_hashes": [-1]},
            ["BlockRemoved", [3], "CPU"],
            {"type": "AllBlocksCleared"},
            ["AllBlocksCleared"],
            rank=3,
        )
    )
    assert batch.rank == 3
    assert batch.events == [
        BlocksRemoved([-1], None, None),
        BlocksRemoved([3], "CPU", None),
        CacheCleared(),
        CacheCleared(),
    ]


@pytest.mark.parametrize(
    "content",
    [
        *NO_BATCHES,
        [1.0, [STORED | {"token_ids": [1.5]}], None],
        [1.0, [STORED | {"extra_keys": {}}], None],
        [1.0, [STORED | {"parent_block_hash": []}], None],
    ],
)
def test_anything_else_is_a_named_error(content: Any) -> None:
    with pytest.raises(InputValueError):
        parse_batch(msgspec.msgpack.encode(content))


def test_a_batch_is_bounded() -> None:
    with pytest.raises(InputValueError, match="at most"):
        parse_batch(bytes((16 << 20) + 1))


@given(st.binary(max_size=200))
def test_garbage_is_a_named_error(payload: bytes) -> None:
    with contextlib.suppress(InputValueError):
        parse_batch(payload)
