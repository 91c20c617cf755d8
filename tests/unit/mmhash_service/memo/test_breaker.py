"""A failing store is not used until it recovers, and requests do not wait for it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mmhash_service.memo import breaker
from mmhash_service.memo.breaker import MAX_CONCURRENT, MAX_FAILURES, Breaker
from mmhash_service.memo.redis import RedisStore
from mmhash_service.telemetry.metrics import REGISTRY


class Store(RedisStore):
    """A store that does what a test says, and counts."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.fails_with: Exception | None = None
        self.hangs = False
        self.is_full = False
        self.asked = 0
        self.closed = False

    async def get(self, name: bytes) -> bytes | None:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails_with is not None:
            raise self.fails_with
        return self.entries.get(name)

    async def put(self, name: bytes, value: bytes) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.is_full:
            raise OSError("no space")
        self.entries[name] = value

    async def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIMEOUT_S", "RETRY_S", "PROBE_S"):
        monkeypatch.setattr(breaker, name, 0.02)


def run(test: Callable[[Store, Breaker], Coroutine[Any, Any, None]]) -> Store:
    store = Store()

    async def main() -> None:
        tried = Breaker(store)
        await test(store, tried)
        await tried.close()

    asyncio.run(main())
    assert store.closed
    return store


async def until(condition: Callable[[], bool]) -> None:
    for _ in iter(condition, True):
        await asyncio.sleep(0.001)


def test_a_write_arrives_soon() -> None:
    async def test(store: Store, tried: Breaker) -> None:
        tried.put(b"a", b"1")
        assert not store.entries  # nobody has waited
        await until(lambda: bool(store.entries))
        assert await tried.get(b"a") == b"1"
        assert await tried.get(b"b") is None

    run(test)


def test_closing_waits_for_the_last_write() -> None:
    async def test(_: Store, tried: Breaker) -> None:
        tried.put(b"a", b"1")

    assert run(test).entries == {b"a": b"1"}


@pytest.mark.parametrize("failure", [OSError("gone"), ValueError("nonsense"), None])
def test_a_store_that_fails_or_hangs_a_few_times_is_not_asked_for_a_while(
    failure: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(store: Store, tried: Breaker) -> None:
        store.entries[b"a"] = b"1"
        store.fails_with, store.hangs = failure, failure is None
        for _ in range(MAX_FAILURES):
            assert await tried.get(b"a") is None
        asked = store.asked
        for _ in range(100):
            assert await tried.get(b"a") is None
        assert store.asked == asked == MAX_FAILURES
        tried.put(b"b", b"2")
        await until(lambda: store.asked > 2 * MAX_FAILURES)  # it is tried again and again
        store.fails_with, store.hangs = None, False
        found = None
        while found is None:
            await asyncio.sleep(0.001)
            found = await tried.get(b"a")
        assert found == b"1"
        assert b"b" not in store.entries

    caplog.set_level(logging.INFO)
    run(test)
    levels = [record.levelname for record in caplog.records if record.name == breaker.__name__]
    assert levels == ["WARNING", "INFO"]  # it fails, it has recovered


def test_a_store_that_fails_now_and_then_is_still_asked() -> None:
    async def test(store: Store, tried: Breaker) -> None:
        store.entries[b"a"] = b"1"
        for _ in range(5):
            store.fails_with = OSError("late")
            for _ in range(MAX_FAILURES - 1):
                assert await tried.get(b"a") is None
            store.fails_with = None
            assert await tried.get(b"a") == b"1"

    run(test)


def test_a_store_that_cannot_be_opened_is_not_asked_for_a_while() -> None:
    async def test(store: Store, tried: Breaker) -> None:
        store.hangs = True
        await tried.open()
        asked = store.asked
        assert await tried.get(b"a") is None
        assert store.asked == asked

    run(test)


def test_failures_are_counted_for_as_long_as_the_store_fails() -> None:
    """An alert on their rate must last, although requests no longer reach the store."""

    def failed_probes() -> float:
        return REGISTRY.get_sample_value("mmhash_memo_failures_total", {"operation": "probe"}) or 0

    async def test(store: Store, tried: Breaker) -> None:
        store.fails_with = OSError("down")
        await tried.open()
        before = failed_probes()
        await until(lambda: failed_probes() >= before + 3)

    run(test)


def test_a_full_store_still_answers_reads() -> None:
    async def test(store: Store, tried: Breaker) -> None:
        store.entries[b"a"] = b"1"
        store.is_full = True
        for number in range(10):
            tried.put(b"%d" % number, b"")
        await asyncio.sleep(0.01)
        assert await tried.get(b"a") == b"1"

    run(test)


def test_concurrent_operations_are_bounded() -> None:
    async def test(store: Store, tried: Breaker) -> None:
        store.hangs = True
        for number in range(2 * MAX_CONCURRENT):
            tried.put(b"%d" % number, b"")
        asking = [asyncio.create_task(tried.get(b"a")) for _ in range(2 * MAX_CONCURRENT)]
        await asyncio.sleep(0)
        assert len(tried._puts) == store.asked == MAX_CONCURRENT
        assert await asyncio.gather(*asking) == [None] * 2 * MAX_CONCURRENT

    run(test)


def test_a_cancelled_call_does_not_count_as_a_failure_of_the_store() -> None:
    async def test(store: Store, tried: Breaker) -> None:
        store.hangs = True
        asking = asyncio.create_task(tried.get(b"a"))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        store.hangs = False
        store.entries[b"a"] = b"1"
        assert await tried.get(b"a") == b"1"

    run(test)
