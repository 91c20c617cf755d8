"""Computations that replicas wait for, at a Redis server that takes no claims."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mmhash_service.claims.flight import Flights
from mmhash_service.claims.stores import create_claims
from mmhash_service.memo.breaker import Breaker
from mmhash_service.memo.stores import create_store
from tests.support.redis import RedisServer, running_redis


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(tmp_path) as server:
        yield server


def make_full(redis: RedisServer) -> None:
    with redis.client() as admin:
        admin.config_set("maxmemory", 1)


def make_read_only(redis: RedisServer) -> None:
    with redis.client() as admin:
        admin.replicaof("127.0.0.1", 1)


@pytest.mark.parametrize("make_unwritable", [make_full, make_read_only])
def test_a_store_that_takes_no_claim_costs_neither_time_nor_hits(
    redis: RedisServer, make_unwritable: Callable[[RedisServer], None]
) -> None:
    computations = []

    async def compute() -> bytes:
        computations.append(1)
        return b"result"

    async def test() -> bytes | None:
        store = create_store(redis.url, 0)
        breaker = Breaker(store)
        await breaker.open()
        flights = Flights(create_claims("redis", breaker, store), max_wait_s=600)
        await store.put(b"known", b"value")
        make_unwritable(redis)
        for number in range(5):
            assert await flights.run(b"%d" % number, compute) == b"result"
        found = await breaker.get(b"known", lambda value: value)
        await flights.close()
        await breaker.close()
        return found

    assert asyncio.run(test()) == b"value"
    assert len(computations) == 5
    with redis.client() as admin:
        calls = admin.info("commandstats")["cmdstat_eval"]["calls"]
    assert calls <= 15  # two attempts and a look for each
