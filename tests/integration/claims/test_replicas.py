"""Replicas that receive one new image at the same time: one computes, and none waits for nothing."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.claim_workers import LEASE_S
from tests.support.memo import hash_pixels, small_images
from tests.support.patience import PATIENT_COMMAND
from tests.support.redis import RedisServer
from tests.support.service import count, serving

pytestmark = pytest.mark.slow

Start = Callable[..., Any]


def test_sixteen_processes_compute_once(replicas: Start) -> None:
    one = replicas(16, 0.5)
    one.start()
    one.check_results()
    assert len(one.computations()) == 1


def test_a_killed_holder_is_replaced_by_one(replicas: Start) -> None:
    # A lease is renewed, by each holder, because the computation takes longer.
    some = replicas(16, LEASE_S + 3)
    some.start()
    for number in (1, 2):
        holder = some.wait_for_computations(number)[-1]
        some.kill(holder)
    some.check_results()
    assert len(some.computations()) == 3
    assert "end" in some.log.read_text()


def test_a_stopped_redis_costs_computations_but_no_answer(
    replicas: Start, redis: RedisServer
) -> None:
    some = replicas(4, 0.5)
    redis.kill()
    some.start()
    some.check_results()
    assert len(some.computations()) == 4


def test_a_redis_that_stops_while_one_computes(replicas: Start, redis: RedisServer) -> None:
    some = replicas(4, 1)
    some.start()
    some.wait_for_computations(1)
    redis.kill()
    some.check_results()


def test_a_partition_shorter_than_the_lease_does_not_compute_again(
    replicas: Start, redis: RedisServer
) -> None:
    some = replicas(8, 1.5)
    some.start()
    some.wait_for_computations(1)
    time.sleep(0.2)  # all others have seen the lease
    redis.freeze()
    time.sleep(0.7)
    redis.thaw()
    some.check_results()
    assert len(some.computations()) == 1


def test_a_partition_longer_than_the_lease_costs_no_answer(
    replicas: Start, redis: RedisServer
) -> None:
    some = replicas(8, 1, timeout_s=1)
    some.start()
    some.wait_for_computations(1)
    redis.freeze()
    try:
        some.check_results()
    finally:
        redis.thaw()


def test_a_stalled_holder_cannot_publish_after_it_was_replaced(
    replicas: Start, redis: RedisServer
) -> None:
    some = replicas(2, 3)  # the first one is stopped within this time
    some.start()
    (holder,) = some.wait_for_computations(1)[:1]
    os.kill(holder, signal.SIGSTOP)
    assert some.wait_for_computations(2)[1] != holder
    os.kill(holder, signal.SIGCONT)
    some.check_results()
    assert len(some.computations()) == 2


def test_two_services_decode_an_image_once(redis: RedisServer) -> None:
    settings = {"memo_url": redis.url, "memo_bytes": "0"}
    with (
        serving(settings=settings, program=PATIENT_COMMAND) as one,
        serving(settings=settings, program=PATIENT_COMMAND) as two,
        one.new_client() as first,
        two.new_client() as second,
    ):
        images = small_images()[:20]
        for image in images:
            left, right = (hash_pixels(client, image) for client in (first, second))
            assert left["key"] == right["key"]
        decoded = sum(
            count(client, "mmhash_flights_total", outcome="computed") for client in (first, second)
        )
        assert decoded == len(images)


def test_a_claim_of_one_replica_is_seen_by_the_other(redis: RedisServer) -> None:
    settings = {"memo_url": redis.url}
    holder = "ab" * 16
    with (
        serving(settings=settings) as one,
        serving(settings=settings) as two,
        one.new_client() as first,
        two.new_client() as second,
    ):

        def claim(client: httpx.Client, **body: Any) -> Any:
            return client.post("/claim", json={"key": "k", **body})

        def once_available(client: httpx.Client, **body: Any) -> Any:
            """A Redis that was frozen, or a busy machine, costs a second or two."""
            while (response := claim(client, **body)).status_code == 503:
                time.sleep(0.05)
            return response.json()

        # Longer than a busy machine needs: the lease must not end before its completion.
        held = once_available(first, action="acquire", holder=holder, ttl_s=300)
        assert held["state"] == "held"
        other = once_available(second, action="acquire", holder="cd" * 16)
        assert (other["state"], other["fence"]) == ("busy", held["fence"])
        redis.freeze()
        failed = claim(second, action="wait")
        assert failed.json()["type"] == "urn:mmhash:problem:claims-unavailable"
        redis.thaw()
        done = {"action": "complete", "holder": holder, "fence": held["fence"]}
        once_available(first, **done, result={"worker": "w"})
        waited = once_available(second, action="wait", wait_s=20)
        assert waited["result"] == {"worker": "w"}
