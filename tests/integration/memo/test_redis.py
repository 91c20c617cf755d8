"""The memo in a real Redis: shared by replicas, and no failed call whatever becomes of it."""

import threading
import time
from collections.abc import Callable
from typing import Any, Self

import httpx
import pytest

from tests.support.memo import hash_pixels, share_an_image
from tests.support.service import count

Serve = Callable[..., httpx.Client]


def until_stored(admin: Any) -> bytes:
    """Return the name of the only entry, once it is there: it is stored after the answer."""
    while not (names := admin.keys("*")):
        time.sleep(0.01)
    (name,) = names
    return name


class Load:
    """Threads that ask for images without end, and note what is not a good answer."""

    def __init__(self, client: httpx.Client, images: list[bytes], threads: int = 4) -> None:
        self.wrong: list[Any] = []
        self.answers = 0
        self._url = f"{client.base_url}/hash?of=pixels"
        self._images = images
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, answers: int) -> None:
        """Return after so many more answers."""
        until = self.answers + answers
        while self.answers < until:
            assert not self.wrong
            time.sleep(0.005)

    def _ask(self) -> None:
        try:
            with httpx.Client(timeout=60) as client:
                while not self._stop.is_set():
                    image = self._images[self.answers % len(self._images)]
                    headers = {"content-type": "image/png"}
                    answer = client.post(self._url, content=image, headers=headers)
                    if answer.status_code != 200:
                        self.wrong.append(answer.text)
                    self.answers += 1
        except httpx.HTTPError as error:
            self.wrong.append(error)


def test_two_replicas_share_a_memo(serve: Serve, redis: Any, images: list[bytes]) -> None:
    url = f"memo_url=redis://127.0.0.1:{redis.port}"
    one, two = serve(url), serve(url)
    assert one.get("/info").json()["memo"] == "redis"
    image = share_an_image(one, two, images)
    assert count(two, "mmhash_memo_lookups_total", source="store") == 1
    # The second time it need not ask Redis.
    assert hash_pixels(two, image)["memo"] == "hit"
    assert count(two, "mmhash_memo_lookups_total", source="memory") == 1


def test_entries_expire(serve: Serve, redis: Any, images: list[bytes]) -> None:
    hash_pixels(serve(f"memo_url=redis://127.0.0.1:{redis.port}"), images[0])
    with redis.client() as client:
        name = until_stored(client)
        assert 0 < client.ttl(name) <= 7 * 24 * 3600
    assert name.startswith(b"mmhash:")


@pytest.mark.slow
def test_killed_and_brought_back_under_load_it_costs_no_call(
    serve: Serve, redis: Any, images: list[bytes]
) -> None:
    client = serve(f"memo_url=redis://127.0.0.1:{redis.port}", "memo_bytes=0")

    def from_redis() -> float:
        return count(client, "mmhash_memo_lookups_total", source="store")

    with Load(client, images[:20]) as load:
        load.wait_for(200)
        while from_redis() == 0:
            load.wait_for(20)
        for _ in range(2):
            redis.kill()
            load.wait_for(200)
            gone = from_redis()
            load.wait_for(100)
            assert from_redis() == gone
            redis.start()
            while from_redis() == gone:
                load.wait_for(20)
    assert load.wrong == []
    assert count(client, "mmhash_memo_failures_total", operation="get") > 0


@pytest.mark.slow
def test_a_cluster(serve: Serve, start_redis: Callable[..., Any], images: list[bytes]) -> None:
    node = start_redis("--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
    with node.client() as admin:
        admin.execute_command("CLUSTER ADDSLOTS", *range(16384))
        while admin.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            time.sleep(0.01)
    url = f"memo_url=redis+cluster://127.0.0.1:{node.port}"
    share_an_image(serve(url), serve(url), images)
    with node.client() as admin:
        assert admin.dbsize() > 0
