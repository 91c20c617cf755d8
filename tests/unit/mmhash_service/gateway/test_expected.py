"""The blocks that a worker is expected to have soon, with and without names."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

import mmhash
from mmhash.prompts import Plan
from mmhash.prompts.plan import PlannedItem
from mmhash_service.gateway.expected import (
    BLOCK_TOKENS,
    ExpectedBlocks,
    SentBlocks,
    UnnamedBlocks,
    name_blocks,
)

MAX_BLOCKS = 12
prompts = st.lists(st.integers(0, 8), max_size=6)


class Requests(RuleBasedStateMachine):
    """Requests that begin and end in any order."""

    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.expected = ExpectedBlocks(MAX_BLOCKS)
        self.model: list[Sequence[int]] = []

    @rule(target=running, ids=prompts)
    def begin(self, ids: list[int]) -> Sequence[int]:
        room = MAX_BLOCKS - sum(map(len, self.model))
        added = self.expected.add(ids)
        assert list(added) == ids[:room]
        self.model.append(added)
        return added

    @rule(ids=consumes(running))
    def end(self, ids: Sequence[int]) -> None:
        self.expected.remove(ids)
        self.model.remove(ids)

    @rule(ids=prompts, start=st.integers(0, 6))
    def match(self, ids: list[int], start: int) -> None:
        blocks = {one for request in self.model for one in request}
        run = self.expected.run(ids, start)
        assert all(one in blocks for one in ids[start : start + run])
        assert ids[start + run :][:1] == [] or ids[start + run] not in blocks

    @invariant()
    def counts(self) -> None:
        assert len(self.expected) == len({one for request in self.model for one in request})


TestRequests = Requests.TestCase


@given(st.lists(prompts))
def test_nothing_is_expected_when_all_requests_have_ended(requests: list[list[int]]) -> None:
    expected = ExpectedBlocks()
    for added in [expected.add(ids) for ids in requests]:
        expected.remove(added)
    assert len(expected) == 0


def test_expected_blocks_count_from_the_end_of_the_cached_ones() -> None:
    expected = ExpectedBlocks()
    expected.add([3, 4])
    assert expected.run([1, 2, 3, 4, 5], 2) == 2
    assert expected.run([1, 2, 3, 4, 5], 1) == 0
    assert expected.run([1, 2], 2) == 0


IMAGE = mmhash.key(b"an image")
OTHER = mmhash.key(b"another")
LENGTH = 10 * BLOCK_TOKENS


def planned(key: mmhash.Digest = IMAGE, *, named: int = 0, length: int = LENGTH) -> Plan:
    """Return a plan with an image in its second block; `named` is the number of event ids."""
    start = BLOCK_TOKENS + 5
    item = PlannedItem("image", key, {}, (56, 56), None, start, start + 4, [(start, start + 4)])
    ids = list(range(length))
    ids[item.start : item.end] = [7] * 4
    return Plan(ids, [item], [], [], list(range(100, 100 + named)), {}, [length])


def shared(one: UnnamedBlocks, other: UnnamedBlocks) -> int:
    """Return how many names both begin with."""
    count = 0
    for a, b in zip(one.names, other.names, strict=False):
        if a != b:
            break
        count += 1
    return count


def test_a_name_covers_all_before_it() -> None:
    names = name_blocks(planned(), 1)
    assert len(names.names) == 10
    assert shared(names, name_blocks(planned(), 1)) == 10
    assert shared(names, name_blocks(planned(OTHER), 1)) == 1  # the image is in the second block
    assert shared(names, name_blocks(planned(length=LENGTH - 1), 1)) == 9
    changed = planned()
    changed.token_ids[0] += 1
    assert shared(names, name_blocks(changed, 1)) == 0


def test_names_start_after_the_blocks_that_the_engine_names() -> None:
    names = name_blocks(planned(named=BLOCK_TOKENS), 1)
    assert len(names.names) == 9
    assert names.tokens_each == BLOCK_TOKENS
    salted = replace(planned(named=BLOCK_TOKENS), event_ids=[9] * BLOCK_TOKENS)
    assert shared(names, name_blocks(salted, 1)) == 0


@pytest.mark.parametrize("named", [BLOCK_TOKENS + 7, BLOCK_TOKENS + 9, 2 * BLOCK_TOKENS])
def test_an_image_may_lie_before_the_first_name(named: int) -> None:
    names = name_blocks(planned(named=named), 1)
    assert len(names.names) == (LENGTH - named) // BLOCK_TOKENS
    tail = replace(planned(named=named), items=[])
    tail.token_ids[:named] = [0] * named
    is_before = named >= BLOCK_TOKENS + 9
    assert shared(names, name_blocks(tail, 1)) == (len(names.names) if is_before else 0)


def test_a_prompt_whose_whole_blocks_are_named_has_none() -> None:
    for length in (LENGTH, LENGTH + 15):
        assert name_blocks(planned(named=LENGTH // 16, length=length), 16).names == ()
    # More event ids than whole blocks leave nothing either.
    assert name_blocks(planned(named=LENGTH // 16 + 1, length=LENGTH + 3), 16).names == ()


def test_sent_blocks_are_assumed_to_be_cached() -> None:
    sent = SentBlocks()
    sent.add(UnnamedBlocks([b"1", b"2", b"3"], 32), 1000)
    assert sent.count_tokens(UnnamedBlocks([b"1", b"2", b"4", b"3"], 32)) == 64
    assert sent.count_tokens(UnnamedBlocks([b"2"], 32)) == 32
    assert sent.count_tokens(UnnamedBlocks([b"4", b"1"], 32)) == 0
    assert sent.count_tokens(UnnamedBlocks()) == 0


def test_the_blocks_of_requests_that_run_are_assumed_to_be_held() -> None:
    sent = SentBlocks()
    blocks = UnnamedBlocks([b"1", b"2"], 32)
    for _ in range(2):
        sent.begin(blocks)
    sent.add(UnnamedBlocks([b"3"], 32), 32)
    sent.end(blocks)
    assert sent.count_tokens(blocks) == 64
    sent.clear()
    assert sent.count_tokens(blocks) == 64
    sent.end(blocks)
    assert sent.count_tokens(blocks) == len(sent) == 0


def test_the_oldest_blocks_are_dropped_and_of_a_prompt_the_last_ones() -> None:
    sent = SentBlocks()
    first, second = UnnamedBlocks([b"1", b"2", b"3"], 32), UnnamedBlocks([b"1", b"4"], 32)
    sent.add(first, 128)
    sent.add(second, 128)
    assert len(sent) == 4
    sent.add(UnnamedBlocks([b"image"], 600), 664)  # 3, then 2
    assert len(sent) == 3
    assert sent.count_tokens(first) == 32
    assert sent.count_tokens(second) == 64
    sent.add(second, 64)
    assert len(sent) == 2
    assert sent.count_tokens(second) == 64


def test_a_prompt_that_is_larger_than_the_cache_keeps_its_beginning() -> None:
    sent = SentBlocks()
    blocks = UnnamedBlocks([b"%d" % number for number in range(100)], 32)
    for _ in range(2):
        sent.add(blocks, 320)
        assert sent.count_tokens(blocks) == 320
