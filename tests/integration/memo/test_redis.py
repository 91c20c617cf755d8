"""The memo in a real Redis, which replicas share."""

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.memo import hash_pixels, share_an_image
from tests.support.service import count

Serve = Callable[..., httpx.Client]


def until_stored(admin: Any) -> bytes:
    """Return the name of the only entry, which the service stores after its response."""
    while not (names := admin.keys("*")):
        time.sleep(0.01)
    (name,) = names
    return name


def test_two_replicas_share_a_memo(serve: Serve, redis: Any, images: list[bytes]) -> None:
    one, two = serve(redis.url), serve(redis.url)
    assert one.get("/info").json()["memo"] == "redis"
    image = share_an_image(one, two, images)
    assert count(two, "mmhash_memo_lookups_total", source="store") == 1
    # The second time, the service need not ask Redis.
    assert hash_pixels(two, image)["memo"] == "hit"
    assert count(two, "mmhash_memo_lookups_total", source="memory") == 1


def test_entries_expire(serve: Serve, redis: Any, images: list[bytes]) -> None:
    hash_pixels(serve(redis.url), images[0])
    with redis.client() as client:
        name = until_stored(client)
        assert 0 < client.ttl(name) <= 7 * 24 * 3600
    assert name.startswith(b"mmhash:")


@pytest.mark.slow
def test_a_cluster(serve: Serve, start_redis: Callable[..., Any], images: list[bytes]) -> None:
    node = start_redis("--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
    with node.client() as admin:
        admin.execute_command("CLUSTER ADDSLOTS", *range(16384))
        while admin.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            time.sleep(0.01)
    url = f"redis+cluster://127.0.0.1:{node.port}"
    share_an_image(serve(url), serve(url), images)
    with node.client() as admin:
        assert admin.dbsize() > 0
