"""The blocks that a worker is expected to hold, against a list of its requests."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from mmhash_service.gateway.expected import ExpectedBlocks

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
def test_nothing_stays_when_all_requests_have_ended(requests: list[list[int]]) -> None:
    expected = ExpectedBlocks()
    for added in [expected.add(ids) for ids in requests]:
        expected.remove(added)
    assert len(expected) == 0


def test_a_run_begins_behind_the_blocks_that_are_held() -> None:
    expected = ExpectedBlocks()
    expected.add([3, 4])
    assert expected.run([1, 2, 3, 4, 5], 2) == 2
    assert expected.run([1, 2, 3, 4, 5], 1) == 0
    assert expected.run([1, 2], 2) == 0
