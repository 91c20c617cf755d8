"""Entries in memory: never more than the bound, and the longest unused go first."""

import os
import tracemalloc
from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from mmhash_service.memo.memory import ENTRY_OVERHEAD, LruCache

NAMES = st.binary(min_size=1, max_size=2)
STEPS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=600)), max_size=200)


@given(st.integers(0, 4000), STEPS)
def test_it_is_a_dict_that_forgets_the_longest_unused(
    bound: int, steps: list[tuple[bytes, bytes | None]]
) -> None:
    memory = LruCache(bound)
    model: OrderedDict[bytes, bytes] = OrderedDict()
    for name, value in steps:
        if value is None:
            assert memory.get(name) == model.get(name)
            if name in model:
                model.move_to_end(name)
            continue
        memory.put(name, value)
        model.pop(name, None)
        if len(name) + len(value) + ENTRY_OVERHEAD <= bound:
            model[name] = value
        while (held := sum(len(a) + len(b) + ENTRY_OVERHEAD for a, b in model.items())) > bound:
            model.popitem(last=False)
        assert memory.nbytes == held <= bound
    assert {name: memory.get(name) for name, _ in steps} == {
        name: model.get(name) for name, _ in steps
    }


def test_the_bound_is_that_of_the_process_s_memory() -> None:
    bound = 4 << 20
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        memory = LruCache(bound)
        for _ in range(30_000):
            memory.put(os.urandom(32), os.urandom(107))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert bound / 2 < taken < bound * 1.1
