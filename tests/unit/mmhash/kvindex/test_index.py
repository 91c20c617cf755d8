"""Workers and their endpoints, and events applied to ranks."""

import pytest

from mmhash.errors import InputValueError, LimitError
from mmhash.kvindex import Index, Worker
from mmhash.kvindex.changes import Changes, Cleared, Removed, Stored

EVENTS = "tcp://127.0.0.1:5557"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"events": "127.0.0.1:5557"}, "events is an endpoint"),
        ({"events": "tcp://127.0.0.1"}, "events is an endpoint"),
        ({"events": "http://127.0.0.1:5557"}, "events is an endpoint"),
        ({"replay": "tcp://127.0.0.1:port"}, "replay is an endpoint"),
        ({"ranks": 0}, "1 to 256 ranks"),
        ({"ranks": 257}, "1 to 256 ranks"),
        ({"ranks": 2, "events": "ipc:///run/events"}, "several ranks has a port"),
        ({"ranks": 2, "replay": "tcp://127.0.0.1:65535"}, "replay is an endpoint"),
        ({"events": "tcp://127.0.0.1:70000"}, "events is an endpoint"),
        ({"events": "tcp://127.0.0.1:0"}, "events is an endpoint"),
    ],
)
def test_a_worker_that_cannot_be_is_a_named_error(options: dict[str, object], text: str) -> None:
    with pytest.raises(InputValueError, match=text):
        Worker("http://a", **{"events": EVENTS, **options})


def test_an_endpoint_that_zeromq_refuses_is_an_error_of_add() -> None:
    with pytest.raises(InputValueError, match="events is an endpoint"):
        Index([Worker("http://a", "ipc://" + "x" * 200)])


def test_events_change_the_rank_that_they_name() -> None:
    blocks = Index([Worker("http://a", EVENTS, ranks=3)])
    (source, second, _) = blocks._workers["http://a"].sources
    source.apply(Changes(0.0, [Stored([1, 2], 16, "GPU"), Stored([1], 16, "CPU")]), is_live=False)
    second.apply(Changes(0.0, [Stored([1], 16)], 1), is_live=False)
    source.apply(Changes(0.0, [Stored([1], 8)], 5), is_live=False)
    match = blocks.match([1, 2])["http://a"]
    assert (match.tokens, match.rank) == (32, 0)
    assert match.tiers == {"GPU": 32, "CPU": 16}
    assert match.ranks == {0: 32, 1: 16, 5: 8}
    source.apply(Changes(0.0, [Removed([2], "GPU"), Cleared()]), is_live=False)
    assert blocks.match([1, 2])["http://a"].ranks == {1: 16, 5: 8}
    stats = blocks.stats().workers["http://a"]
    assert (stats.blocks, stats.block_size) == (2, 16)
    blocks.stop()


def test_owners_of_a_tier_are_apart() -> None:
    blocks = Index([Worker("http://a", EVENTS)])
    (source,) = blocks._workers["http://a"].sources
    events = [Stored([1], 16, "STORAGE", ownership=one) for one in ("disk", "pool")]
    source.apply(Changes(0.0, [*events, Removed([1], "STORAGE", ownership="disk")]), is_live=False)
    assert blocks.match([1])["http://a"].tiers == {"STORAGE/pool": 16}
    blocks.stop()


def test_a_worker_has_no_more_ranks_than_it_was_added_with() -> None:
    blocks = Index([Worker("http://a", EVENTS, ranks=2)])
    (source, _) = blocks._workers["http://a"].sources
    for rank in range(2):
        source.apply(Changes(0.0, [], rank), is_live=False)
    with pytest.raises(LimitError):
        source.apply(Changes(0.0, [], 2), is_live=False)
    blocks.stop()


def test_a_worker_that_is_unhealthy_before_it_is_opened_is_not_connected() -> None:
    index = Index([Worker("http://a:1", "tcp://127.0.0.1:1")])
    try:
        state = index._workers["http://a:1"]
        state.check(0.0, lambda _url: False)
        index._loop._tasks.popleft()()
        assert not index._loop._by_socket
        state.check(1.0, lambda _url: True)
        assert index._loop._by_socket
    finally:
        index.stop()
