"""KV events as engines publish them, and anything else that arrives on the wire."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmhash.errors import InputValueError
from mmhash.kvindex.events import BlocksRemoved, BlocksStored, CacheCleared, parse_batch
from mmhash.kvindex.table import Layout
from tests.support.kv_publisher import NO_BATCHES, encode, stored

STORED = stored(1, 2, size=2, group_idx=0, session_id="s", extra_keys=[None, [["key", -3]]])


@pytest.mark.parametrize("content", NO_BATCHES)
def test_a_malformed_batch_is_a_named_error(content: Any) -> None:
    with pytest.raises(InputValueError):
        parse_batch(msgspec.msgpack.encode(content))


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("token_ids", [1.5], "tokens"),
        ("extra_keys", {}, "extra_keys"),
        ("parent_block_hash", [], "parent"),
    ],
)
def test_a_field_that_an_index_does_not_need_is_parsed_when_it_is_read(
    field: str, value: Any, name: str
) -> None:
    (event,) = parse_batch(encode(STORED | {field: value})).events
    assert isinstance(event, BlocksStored)
    assert event.ids == [1, 2]
    with pytest.raises(InputValueError):
        getattr(event, name)


def test_a_batch_is_bounded() -> None:
    with pytest.raises(InputValueError, match="at most"):
        parse_batch(bytes((16 << 20) + 1))
    with pytest.raises(InputValueError, match="at most"):
        parse_batch(encode(*[{"type": "AllBlocksCleared"}] * (1 + (1 << 16))))


def values(event: Any) -> tuple[Any, ...]:
    """Return all that a test compares of an event."""
    match event:
        case BlocksStored():
            described = event.parent, event.tokens, event.extra_keys
            return event.ids, event.block_size, event.group, *described
        case BlocksRemoved():
            return event.ids, event.group
    return ()


def test_maps_and_arrays_are_the_same() -> None:
    maps = parse_batch(
        encode(
            STORED,
            {"type": "BlockRemoved", "block_hashes": [3], "medium": "CPU", "group_idx": 2},
            {"type": "AllBlocksCleared"},
            rank=3,
        )
    )
    assert (maps.rank, maps.time) == (3, 1.5)
    assert [type(event) for event in maps.events] == [BlocksStored, BlocksRemoved, CacheCleared]
    extra = [None, [["key", -3]]]
    assert list(map(values, maps.events)) == [
        ([1, 2], 2, 0, None, [0, 1, 2, 3], extra), ([3], 2), (),
    ]  # fmt: skip
    arrays = parse_batch(
        encode(
            ["BlockStored", [1, 2], None, [0, 1, 2, 3], 2, None, "GPU", None, extra, "later"],
            ["BlockStored", [b"\1" * 32], b"\2" * 32, [5, 6], 2, None],
            ["BlockRemoved", [b"a"], "CPU"],
            ["BlockRemoved", [b"a"]],
            ["AllBlocksCleared"],
        )
    )
    low = int.from_bytes(b"\1" * 8, "big")
    assert list(map(values, arrays.events)) == [
        ([1, 2], 2, None, None, [0, 1, 2, 3], extra),
        ([low], 2, None, 2 * low, [5, 6], None),
        ([97], None),
        ([97], None),
        (),
    ]


@pytest.mark.parametrize("spelled", [-2, (1 << 64) - 2, b"key" + b"\xff" * 7 + b"\xfe"])
def test_ids_are_unsigned_however_they_are_spelled(spelled: int | bytes) -> None:
    window = {"kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 5}
    ids = {"block_hashes": [1, spelled], "parent_block_hash": spelled}
    event = STORED | window | ids
    removed = {"type": "BlockRemoved", "block_hashes": [spelled], "medium": "CPU", "group_idx": 2}
    batch = parse_batch(encode(event, removed, {"type": "AllBlocksCleared"}, rank=3))
    first, second, third = batch.events
    assert isinstance(first, BlocksStored)
    assert isinstance(second, BlocksRemoved)
    assert isinstance(third, CacheCleared)
    assert first.ids == [1, (1 << 64) - 2]
    assert second.ids == [first.parent] == [(1 << 64) - 2]
    assert (first.block_size, first.group) == (2, 0)
    assert first.layout == Layout(2, 2)
    assert second.group == 2
    assert (batch.time, batch.rank) == (1.5, 3)


@pytest.mark.parametrize(
    ("kind", "tokens", "layout"),
    [
        (None, None, Layout(16)),
        ("full_attention", None, Layout(16)),
        ("sliding_window", 1, Layout(16, 1)),
        ("sliding_window", 33, Layout(16, 2)),
        ("sliding_window_mla", 34, Layout(16, 3)),
        ("sliding_window", -1, Layout(16)),
        ("mamba", None, Layout(16, 1, is_state=True)),
    ],
)
def test_a_layout_is_what_vllm_publishes(kind: Any, tokens: Any, layout: Layout) -> None:
    event = BlocksStored([1], 16, kv_cache_spec_kind=kind, kv_cache_spec_sliding_window=tokens)
    assert event.layout == layout


@given(st.binary(max_size=200))
def test_garbage_is_a_named_error(payload: bytes) -> None:
    with contextlib.suppress(InputValueError):
        parse_batch(payload)
