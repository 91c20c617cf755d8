"""The changes in batches of KV events, and anything else that arrives on the wire."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmhash.errors import InputValueError
from mmhash.kvindex.changes import Cleared, Removed, Stored, parse_changes
from tests.support.kv_publisher import NO_BATCHES, encode, stored

STORED = stored(1, 2, size=2, group_idx=0, session_id="s")


@pytest.mark.parametrize("content", NO_BATCHES)
def test_anything_else_is_a_named_error(content: Any) -> None:
    with pytest.raises(InputValueError):
        parse_changes(msgspec.msgpack.encode(content))


@pytest.mark.parametrize(
    "fields", [{"token_ids": [1.5]}, {"extra_keys": {}}, {"parent_block_hash": []}]
)
def test_what_an_index_does_not_need_is_skipped(fields: dict[str, Any]) -> None:
    assert parse_changes(encode(STORED | fields)).events == [Stored([1, 2], 2, "GPU", 0)]


def test_a_batch_is_bounded() -> None:
    with pytest.raises(InputValueError, match="at most"):
        parse_changes(bytes((16 << 20) + 1))
    with pytest.raises(InputValueError, match="at most"):
        parse_changes(encode(*[{"type": "AllBlocksCleared"}] * (1 + (1 << 16))))


def test_changes_of_maps_and_arrays_are_the_same() -> None:
    maps = parse_changes(
        encode(
            STORED,
            {"type": "BlockRemoved", "block_hashes": [3], "medium": "CPU", "group_idx": 2},
            {"type": "AllBlocksCleared"},
            rank=3,
        )
    )
    assert maps.rank == 3
    assert maps.time == 1.5
    assert maps.events == [Stored([1, 2], 2, "GPU", 0), Removed([3], "CPU", 2), Cleared()]
    arrays = parse_changes(
        encode(
            ["BlockStored", [1, 2], None, [5, 6, 7, 8], 2, None, "GPU", None, [None], "later"],
            ["BlockStored", [1], 5, [5, 6], 2, None],
            ["BlockRemoved", [b"a"], "CPU"],
            ["BlockRemoved", [b"a"]],
            ["AllBlocksCleared"],
        )
    )
    assert arrays.events == [
        Stored([1, 2], 2, "GPU"),
        Stored([1], 2),
        Removed([97], "CPU"),
        Removed([97]),
        Cleared(),
    ]


@pytest.mark.parametrize("spelled", [-2, (1 << 64) - 2, b"key" + b"\xff" * 7 + b"\xfe"])
def test_changes_have_unsigned_ids_however_they_are_spelled(spelled: int | bytes) -> None:
    window = {"kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 5}
    event = STORED | window | {"block_hashes": [1, spelled], "ownership": "disk"}
    removed = {"type": "BlockRemoved", "block_hashes": [spelled], "medium": "CPU", "group_idx": 2}
    changes = parse_changes(encode(event, removed, {"type": "AllBlocksCleared"}, rank=3))
    first, second, third = changes.events
    assert isinstance(first, Stored)
    assert isinstance(second, Removed)
    assert isinstance(third, Cleared)
    assert first.block_hashes == [1, (1 << 64) - 2]
    assert second.block_hashes == [(1 << 64) - 2]
    assert (first.block_size, first.medium, first.group_idx, first.ownership) == (
        2,
        "GPU",
        0,
        "disk",
    )
    assert first.window == 2
    assert (second.medium, second.group_idx) == ("CPU", 2)
    assert (changes.time, changes.rank) == (1.5, 3)


@pytest.mark.parametrize(
    ("kind", "tokens", "window"),
    [
        (None, None, None),
        ("full_attention", None, None),
        ("sliding_window", 1, 0),
        ("sliding_window", 33, 2),
        ("sliding_window_mla", 34, 3),
        ("sliding_window", -1, None),
        ("mamba", None, 1),
    ],
)
def test_a_window_is_as_many_blocks_as_vllm_looks_for(kind: Any, tokens: Any, window: Any) -> None:
    event = Stored([1], 16, kv_cache_spec_kind=kind, kv_cache_spec_sliding_window=tokens)
    assert event.window == window


@given(st.binary(max_size=200))
def test_garbage_is_a_named_error(payload: bytes) -> None:
    with contextlib.suppress(InputValueError):
        parse_changes(payload)
