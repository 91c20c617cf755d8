"""A bounded cache that evicts its least recently used entries."""

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from mmhash.lru import LruCache

OVERHEAD = 240
NAMES = st.binary(min_size=1, max_size=2)
STEPS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=600)), max_size=200)


@given(st.integers(0, 4000), STEPS)
def test_the_least_recently_used_entry_is_evicted(
    bound: int, steps: list[tuple[bytes, bytes | None]]
) -> None:
    memory: LruCache[bytes, bytes] = LruCache(
        bound, lambda name, value: len(name) + len(value) + OVERHEAD
    )
    model: OrderedDict[bytes, bytes] = OrderedDict()
    for name, value in steps:
        if value is None:
            assert memory.get(name) == model.get(name)
            if name in model:
                model.move_to_end(name)
            continue
        memory.put(name, value)
        model.pop(name, None)
        if len(name) + len(value) + OVERHEAD <= bound:
            model[name] = value
        while (held := sum(len(a) + len(b) + OVERHEAD for a, b in model.items())) > bound:
            model.popitem(last=False)
        assert memory.size == held <= bound
        assert len(memory) == len(model)
    assert {name: memory.get(name) for name, _ in steps} == {
        name: model.get(name) for name, _ in steps
    }


def test_a_lower_limit_holds_from_the_next_entry_on() -> None:
    cache: LruCache[int, int] = LruCache(10, lambda _key, value: value)
    for key in range(5):
        cache.put(key, 2)
    cache.max_size = 4
    cache.put(5, 2)
    assert [key for key in range(6) if key in cache] == [4, 5]
    cache.clear()
    assert (len(cache), cache.size) == (0, 0)
