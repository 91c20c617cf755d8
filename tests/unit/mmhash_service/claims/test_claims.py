"""The operations of claims, the same in each store."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from mmhash_service.claims.claims import Claims
from mmhash_service.claims.memory import MemoryClaims

Open = Callable[[], AbstractAsyncContextManager[Claims]]
ONE, TWO = b"1" * 16, b"2" * 16
MINUTE = 60_000


def run(open_claims: Open, test: Callable[[Claims, bytes], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_claims() as claims:
            await test(claims, secrets.token_bytes(32))

    asyncio.run(main())


def test_one_holder_at_a_time(open_claims: Open) -> None:
    async def test(claims: Claims, name: bytes) -> None:
        assert (await claims.look(name)).state == "free"
        held = await claims.acquire(name, ONE, MINUTE)
        assert held.state == "held"
        busy = await claims.acquire(name, TWO, MINUTE)
        assert (busy.state, busy.fence) == ("busy", held.fence)
        assert 0 < busy.remaining_ms <= MINUTE
        again = await claims.acquire(name, ONE, MINUTE)
        assert (again.state, again.fence) == ("held", held.fence)

    run(open_claims, test)


def test_a_result_is_for_all(open_claims: Open) -> None:
    async def test(claims: Claims, name: bytes) -> None:
        fence = (await claims.acquire(name, ONE, MINUTE)).fence
        for _ in range(2):  # a repeated operation changes nothing
            assert (await claims.complete(name, ONE, fence, b"r", MINUTE)).state == "done"
        for answer in (await claims.look(name), await claims.acquire(name, TWO, MINUTE)):
            assert (answer.state, answer.fence, answer.result) == ("done", fence, b"r")
        for _ in range(2):
            assert (await claims.fail(name, ONE, fence)).state == "free"
        assert (await claims.complete(name, ONE, fence, b"r", MINUTE)).state == "lost"
        held = await claims.acquire(name, TWO, MINUTE)
        assert held.state == "held"
        assert held.fence > fence

    run(open_claims, test)


def test_fences_grow_from_one_process_to_the_next(open_claims: Open) -> None:
    """A monotonic clock begins again with each boot, and is another one on each host."""

    async def test(claims: Claims, name: bytes) -> None:
        before_us = time.time_ns() // 1000 - 60_000_000
        fences = [(await claims.acquire(name, ONE, MINUTE)).fence]
        for holder in (TWO, ONE) * 10:
            await claims.fail(name, TWO if holder == ONE else ONE, fences[-1])
            fences.append((await claims.acquire(name, holder, MINUTE)).fence)
        assert fences == sorted(set(fences))
        assert before_us < fences[0] < 1 << 53

    run(open_claims, test)


def test_fences_grow_if_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        claims = MemoryClaims()
        first = (await claims.acquire(b"a", ONE, MINUTE)).fence
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        assert (await claims.fail(b"a", ONE, first)).state == "free"
        claims._drop(b"a")  # as when the table is full
        assert (await claims.acquire(b"a", TWO, MINUTE)).fence > first

    asyncio.run(test())


def test_a_lease_ends_but_its_holder_may_finish_until_it_is_replaced(open_claims: Open) -> None:
    async def test(claims: Claims, name: bytes) -> None:
        first = (await claims.acquire(name, ONE, 1)).fence
        await asyncio.sleep(0.01)
        assert (await claims.look(name)).state == "free"
        assert (await claims.renew(name, ONE, first, 1)).state == "held"
        await asyncio.sleep(0.01)
        second = (await claims.acquire(name, TWO, MINUTE)).fence
        assert second > first
        assert (await claims.renew(name, ONE, first, MINUTE)).state == "lost"
        assert (await claims.complete(name, ONE, first, b"old", MINUTE)).state == "lost"
        assert (await claims.fail(name, ONE, first)).state == "lost"
        assert (await claims.complete(name, TWO, second, b"new", MINUTE)).result == b"new"

    run(open_claims, test)
