"""The turns of a fleet, and the tokens that its workers were sent lately."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.settings import GatewaySettings, parse_worker
from mmhash_service.gateway.worker import Worker

RANKS = "http://127.0.0.1:{},events=tcp://127.0.0.1:2000,engine=vllm@0.32.0,ranks=256\n"


@pytest.fixture
def fleet() -> Fleet:
    settings = GatewaySettings()
    fleet = Fleet(settings)
    for url in ("http://a:1", "http://b:1"):
        fleet.workers[url] = Worker(parse_worker(url), settings)
    return fleet


def test_the_chosen_worker_has_its_turn_and_its_tokens(fleet: Fleet) -> None:
    one, other = fleet.workers.values()
    fleet.choose(one, 500)
    fleet.choose(other, 0)
    assert one.turn < other.turn
    assert (one.recent_tokens, other.recent_tokens) == (500, 0)


def test_recent_tokens_fade_as_the_caches_get_others(fleet: Fleet) -> None:
    one, other = fleet.workers.values()
    fleet.cached_tokens = 10_000
    fleet.choose(one, 1000)
    for _ in range(100):
        fleet.choose(other, 100)
    assert one.recent_tokens == pytest.approx(1000 / 2.718281828)
    for _ in range(1000):
        fleet.choose(other, 100)
    assert one.recent_tokens < 1
    assert 9_900 < other.recent_tokens < 10_100  # never more than the caches hold


def test_turnover_is_above_the_mean_and_in_eighths(fleet: Fleet) -> None:
    one, other = fleet.workers
    assert fleet.turnovers() == {one: 0, other: 0}
    fleet.cached_tokens = 2000  # 1000 each
    fleet.workers[one].recent_tokens = 740
    fleet.workers[other].recent_tokens = 500
    assert fleet.turnovers() == {one: 0, other: 0}
    fleet.workers[one].recent_tokens = 1500
    assert fleet.turnovers() == {one: 0.5, other: 0}


def test_more_ranks_than_an_index_has_leave_the_fleet_running(tmp_path: Path) -> None:
    """Such workers have no KV events, and the list is read again."""

    async def run() -> None:
        await fleet.open()
        replace("".join(RANKS.format(number) for number in range(1, 401)))
        await asyncio.to_thread(wait_until, lambda: len(fleet.workers) == 400)
        replace("http://127.0.0.1:1\n")
        await asyncio.to_thread(wait_until, lambda: len(fleet.workers) == 1)
        await fleet.close()

    def replace(text: str) -> None:
        new = tmp_path / "new"
        new.write_text(text)
        new.rename(file)

    file = tmp_path / "workers"
    replace("http://127.0.0.1:1\n")
    fleet = Fleet(GatewaySettings(worker_file=file, refresh_s=0.05, health_interval_s=3600))
    asyncio.run(run())


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_fleet_without_workers_has_no_turnover() -> None:
    assert Fleet(GatewaySettings()).turnovers() == {}
