"""The tokens that workers have computed lately."""

from collections.abc import Iterator

import pytest

from mmhash.kvindex import Index
from mmhash_service.gateway.fleet import _RECENT_TOKENS, Fleet
from mmhash_service.gateway.settings import GatewaySettings, WorkerSpec
from mmhash_service.gateway.worker import Worker


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    settings = GatewaySettings()
    fleet = Fleet(settings)
    fleet.index = Index()
    for url in "ab":
        fleet.workers[url] = Worker(WorkerSpec(url), settings)
    yield fleet
    fleet.index.stop()


def recent(fleet: Fleet) -> list[float]:
    fleet.count_recent()
    return [worker.recent_tokens for worker in fleet.workers.values()]


def test_tokens_count_once(fleet: Fleet) -> None:
    fleet.choose(fleet.workers["a"], 0)
    assert recent(fleet) == [0, 0]
    fleet.choose(fleet.workers["a"], 1000)
    once = recent(fleet)
    assert once == [1000, 0]
    assert recent(fleet) == once


def test_older_tokens_lose_their_weight(fleet: Fleet) -> None:
    fleet.choose(fleet.workers["a"], 10_000)
    fleet.count_recent()
    for _ in range(100):
        fleet.choose(fleet.workers["b"], _RECENT_TOKENS // 20)
        fleet.count_recent()
    older, newer = recent(fleet)
    assert older < 100
    assert newer == pytest.approx(_RECENT_TOKENS, rel=0.01)


def test_one_large_count_forgets_all_before(fleet: Fleet) -> None:
    fleet.choose(fleet.workers["a"], 1000)
    fleet.count_recent()
    fleet.choose(fleet.workers["b"], 2 * _RECENT_TOKENS)
    assert recent(fleet) == [0, 2 * _RECENT_TOKENS]
