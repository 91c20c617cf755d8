"""Entries of the memo that somebody made or changed, so that one picture has the key of another.

An entry is sealed under what it is of: who does not hold the picture can neither open nor make one.
"""

import time
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import pytest
from PIL import Image
from redis import Redis

import mmhash
from tests.support.patience import PATIENT_COMMAND
from tests.support.redis import running_redis
from tests.support.service import TIMEOUT_S
from tests.support.victim import serving


def picture(shade: int) -> tuple[bytes, str]:
    body, image = BytesIO(), Image.new("RGB", (16, 12), (shade, 0, 0))
    image.save(body, "PNG")
    return body.getvalue(), mmhash.key(image).hex()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with (
        running_redis(tmp_path_factory.mktemp("redis")) as server,
        Redis(port=server.port, socket_timeout=TIMEOUT_S) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def _replica(redis: Redis) -> Iterator[Any]:
    port = redis.connection_pool.connection_kwargs["port"]
    url = f"redis://127.0.0.1:{port}"
    settings = {"memo_url": url, "memo_bytes": 0}
    with serving(program=PATIENT_COMMAND, **settings) as server:
        yield server


@pytest.fixture
def replica(_replica: Any, redis: Redis) -> Any:
    """A server that remembers nothing itself and asks Redis each time."""
    redis.flushall()
    return _replica


def hash_pixels(server: Any, body: bytes, tenant: str | None = None) -> dict[str, Any]:
    headers = {"content-type": "image/png"} | ({"x-mmhash-tenant": tenant} if tenant else {})
    answer = server.client.post("/hash?of=pixels", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    item: dict[str, Any] = answer.json()["items"][0]
    return item


def entries(redis: Redis, count: int) -> list[bytes]:
    """The names of the entries, once there are so many: nobody waits for them to be kept."""
    while True:
        found = redis.keys("mmhash:*")
        if len(found) >= count:
            return sorted(found)
        time.sleep(0.01)


def test_an_entry_in_another_s_place_is_a_miss(replica: Any, redis: Redis) -> None:
    (one, key_of_one), (other, key_of_other) = picture(1), picture(2)
    hash_pixels(replica, one)
    (name_of_one,) = entries(redis, 1)
    hash_pixels(replica, other)
    (name_of_other,) = set(entries(redis, 2)) - {name_of_one}
    assert hash_pixels(replica, one)["memo"] == "hit"
    value_of_one = redis.get(name_of_one)
    redis.set(name_of_one, redis.get(name_of_other))
    redis.set(name_of_other, value_of_one)
    for body, key in ((one, key_of_one), (other, key_of_other)):
        found = hash_pixels(replica, body)
        assert (found["key"], found["memo"]) == (key, "miss")


@pytest.mark.parametrize("forge", [lambda _: b"x" * 80, lambda sealed: sealed[:-1]])
def test_a_forged_entry_is_a_miss(
    replica: Any, redis: Redis, forge: Callable[[bytes], bytes]
) -> None:
    body, key = picture(4)
    hash_pixels(replica, body)
    (name,) = entries(redis, 1)
    redis.set(name, forge(redis.get(name)))
    found = hash_pixels(replica, body)
    assert (found["key"], found["memo"]) == (key, "miss")


def test_another_kind_of_value_is_a_miss(replica: Any, redis: Redis) -> None:
    body, key = picture(5)
    hash_pixels(replica, body)
    (name,) = entries(redis, 1)
    redis.delete(name)
    redis.rpush(name, "a", "b")
    found = hash_pixels(replica, body)
    assert (found["key"], found["memo"]) == (key, "miss")


def test_a_tenant_neither_reads_nor_writes_what_others_do(replica: Any, redis: Redis) -> None:
    body, _ = picture(6)
    assert hash_pixels(replica, body)["memo"] == "miss"
    entries(redis, 1)
    # No tenant learns that another one, or the public, requested the image before.
    assert hash_pixels(replica, body, "acme")["memo"] == "miss"
    entries(redis, 2)
    assert hash_pixels(replica, body, "acme")["memo"] == "hit"
    assert hash_pixels(replica, body, "umbrella")["memo"] == "miss"


def test_the_store_shows_neither_contents_nor_names(replica: Any, redis: Redis) -> None:
    body, key = picture(7)
    found = hash_pixels(replica, body)
    (name,) = entries(redis, 1)
    printable = name + redis.get(name)
    digests = [key, found["digest"], mmhash.digest(body).hex()]
    assert not any(bytes.fromhex(text) in printable for text in digests)
