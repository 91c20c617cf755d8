"""The block table gives the same matches as a slow model that tries each length."""

import math
import random
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmhash.engines import vllm
from mmhash.errors import LimitError
from mmhash.kvindex import table
from mmhash.kvindex.table import BlockTable, Layout, block_id, block_ids


@dataclass
class Model:
    """One holder, as counts of blocks by group."""

    blocks: dict[int, Counter[int]] = field(default_factory=dict)
    layouts: dict[int, Layout] = field(default_factory=dict)

    def store(self, group: int, ids: list[int], layout: Layout) -> None:
        self.blocks.setdefault(group, Counter()).update(ids)
        known = self.layouts.get(group)
        self.layouts[group] = layout if known is None else known.merge(layout)

    def remove(self, group: int, ids: list[int]) -> None:
        held = self.blocks.get(group, Counter())
        for one in ids:
            held[one] -= held[one] > 0

    def longest(self, ids: list[int]) -> int:
        """Try each length by what the groups need."""
        if not self.layouts:
            return 0
        size = math.gcd(*(each.size for each in self.layouts.values()))
        strides = {group: each.size // size for group, each in self.layouts.items()}
        is_fine = any(
            each.is_state and strides[group] > 1 for group, each in self.layouts.items()
        ) and all(
            each.is_state or each.window is None or strides[group] == 1
            for group, each in self.layouts.items()
        )
        alignment = 1 if is_fine else math.lcm(*strides.values())
        return max(
            n
            for n in range(0, len(ids) + 1, alignment)
            if self.fits(ids[:n], strides, is_fine=is_fine)
        )

    def fits(self, ids: list[int], strides: dict[int, int], *, is_fine: bool) -> bool:
        plain = {g for g, each in self.layouts.items() if each.window is None and strides[g] == 1}
        return all(
            self.blocks.get(group, Counter())[one] for one in ids for group in plain
        ) and all(
            self.blocks.get(group, Counter())[one]
            for group in self.layouts.keys() - plain
            for one in self.needed(group, ids, strides[group], is_fine=is_fine)
        )

    def needed(self, group: int, ids: list[int], stride: int, *, is_fine: bool) -> list[int]:
        layout = self.layouts[group]
        if layout.is_state and is_fine and stride > 1:
            return ids[-1:]
        own = ids[stride - 1 :: stride]
        if layout.window is not None:
            return own[max(0, len(own) - layout.window) :]
        return own + (ids[-1:] if len(ids) % stride else [])


IDS = st.lists(st.integers(0, 9), max_size=8)
LAYOUTS = [
    *[Layout()] * 4,
    *(Layout(size, window) for size in (1, 2, 4) for window in (None, 1, 3)),
    *(Layout(size, 1, is_state=True) for size in (1, 2, 4)),
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["store", "store", "store", "remove", "clear"]),
        st.integers(0, 3),
        st.integers(0, 1),
        IDS,
        st.sampled_from(LAYOUTS),
    ),
    max_size=30,
)


@settings(max_examples=4 * settings().max_examples)
@given(
    STEPS,
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=10), min_size=1, max_size=5),
    st.sampled_from([1, 2, 3, 4096]),
)
def test_a_match_is_that_of_the_definition(steps: Any, prompts: Any, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_PIECE", piece)
        _compare_with_the_definition(steps, prompts)


def _compare_with_the_definition(steps: Any, prompts: Any) -> None:
    blocks = BlockTable(100)
    models = [Model() for _ in range(4)]
    assert [blocks.open() for _ in models] == [0, 1, 2, 3]
    for action, holder, group, ids, layout in steps:
        model = models[holder]
        if action == "store":
            blocks.store(holder, group, ids, layout)
            model.store(group, ids, layout)
        elif action == "remove":
            blocks.remove(holder, group, ids)
            model.remove(group, ids)
        else:
            blocks.clear(holder)
            models[holder] = Model()
    for prompt in prompts:
        found = {holder: model.longest(prompt) for holder, model in enumerate(models)}
        assert blocks.match(prompt) == {one: length for one, length in found.items() if length}


def test_a_holder_evicts_the_least_recently_stored() -> None:
    blocks = BlockTable(128)
    blocks.open()
    blocks.open()
    order: OrderedDict[int, None] = OrderedDict()
    draw = random.Random(1)
    blocks.store(1, 0, range(300, 400))
    for _ in range(2000):
        one = draw.randrange(400)
        order[one] = None
        order.move_to_end(one)
        evicted = blocks.store(0, 0, [one])
        for _ in range(evicted):
            order.popitem(last=False)
        assert len(order) <= 128
        assert list(blocks._groups[0].orders[0]) == list(order)
    assert blocks.count(1) == 100
    assert blocks.blocks() == len({*order, *range(300, 400)})


def test_a_closed_holder_leaves_nothing_and_its_number_is_free() -> None:
    blocks = BlockTable(100)
    assert [blocks.open(), blocks.open()] == [0, 1]
    blocks.store(0, 0, [1, 2])
    blocks.store(1, 0, [1])
    blocks.close(0)
    assert blocks.match([1, 2]) == {1: 1}
    assert blocks.blocks() == 1
    assert blocks.open() == 0
    assert 0 not in blocks.match([1])


def test_holders_and_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_HOLDERS", 2)
    monkeypatch.setattr(table, "MAX_GROUPS", 2)
    blocks = BlockTable(100)
    blocks.open()
    blocks.open()
    with pytest.raises(LimitError):
        blocks.open()
    blocks.store(0, 0, [1])
    blocks.store(0, 1, [1])
    with pytest.raises(LimitError):
        blocks.store(0, 2, [1])


def test_ids_have_one_form() -> None:
    key = bytes(range(32))
    number = vllm.event_id(key)
    assert block_ids([key, number, number - (1 << 64)]) == [number] * 3
    assert block_ids([-1]) == [block_id(-1)] == [(1 << 64) - 1]
