"""The states of a claim: any sequence of operations by any holders, in each store, as in a model."""

import asyncio
import secrets
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmhash_service.claims.claims import Claims
from mmhash_service.claims.memory import MemoryClaims
from tests.support.claims import redis_claims
from tests.support.patience import be_patient
from tests.support.redis import running_redis

SUPPRESSED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]

HOLDERS = [bytes([number]) * 16 for number in range(3)]
LONG = 3_600_000

# An operation, its holder, and which of the fences so far it carries; `expire` ends a lease.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "acquire", "renew", "complete", "fail", "look", "expire"]),
        st.integers(0, 2),
        st.integers(-3, 3),
    ),
    max_size=25,
)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


class Model:
    """The claim as the documentation describes it."""

    def __init__(self) -> None:
        self.state: Literal["free", "held", "done", "failed"] = "free"
        self.owner, self.fence, self.result = b"", -1, b""
        self.live = False

    def expected(self, operation: str, holder: bytes, fence: int) -> str:
        own = (self.owner, self.fence) == (holder, fence)
        if operation == "look":
            seen = {"held": "busy", "done": "done"}
            return seen.get(self.state, "free") if self.live else "free"
        if operation == "acquire":
            if self.live and self.state == "done":
                return "done"
            return "busy" if self.live and self.owner != holder else "held"
        if not own or (self.state == "failed" and operation != "fail"):
            return "lost"
        if operation == "renew":
            return "held" if self.state == "held" else "lost"
        return "done" if operation == "complete" else "free"

    def apply(self, operation: str, holder: bytes, fence: int, result: bytes, state: str) -> None:
        if state == "held":
            self.state, self.owner, self.fence, self.live = "held", holder, fence, True
        elif operation == "complete" and state == "done":
            self.state, self.result, self.live = "done", result, True
        elif operation == "fail" and state == "free":
            self.state, self.live = "failed", False


async def follow(claims: Claims, steps: list[tuple[str, int, int]]) -> None:
    name, model, fences = secrets.token_bytes(16), Model(), [0]
    for number, (operation, index, which) in enumerate(steps):
        holder = HOLDERS[index]
        fence = fences[-1] + which if which < 0 else fences[-1 - which % len(fences)]
        fence, result = max(fence, 0), b"%d" % number
        if operation == "expire":
            if model.state == "held" and model.live:
                await claims.renew(name, model.owner, model.fence, 1)
                await asyncio.sleep(0.003)
                model.live = False
            continue
        arguments: dict[str, tuple[Any, ...]] = {
            "acquire": (holder, LONG),
            "renew": (holder, fence, LONG),
            "complete": (holder, fence, result, LONG),
            "fail": (holder, fence),
            "look": (),
        }
        answer = await getattr(claims, operation)(name, *arguments[operation])
        assert answer.state == model.expected(operation, holder, fence), (operation, number)
        if operation == "acquire" and answer.state == "held":
            is_same = model.live and model.state == "held" and model.owner == holder
            assert (answer.fence == fences[-1]) if is_same else (answer.fence > max(fences))
            fences.append(answer.fence)
            fence = answer.fence
        model.apply(operation, holder, fence, result, answer.state)
        if answer.state == "done":
            assert answer.result == model.result


@given(STEPS)
def test_in_memory(steps: list[tuple[str, int, int]]) -> None:
    asyncio.run(follow(MemoryClaims(), steps))


def test_in_redis(tmp_path: Path) -> None:
    with running_redis(tmp_path) as server, asyncio.Runner() as runner:
        context = redis_claims(server.url)
        claims = runner.run(context.__aenter__())

        @settings(suppress_health_check=SUPPRESSED, deadline=None)
        @given(STEPS)
        def check(steps: list[tuple[str, int, int]]) -> None:
            runner.run(follow(claims, steps))

        check()
        runner.run(context.__aexit__(None, None, None))


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_of_holders_at_the_same_time_one_holds(tmp_path: Path, store: str) -> None:
    async def race(claims: Claims) -> None:
        for _ in range(20):
            name = secrets.token_bytes(16)
            answers = await asyncio.gather(
                *(claims.acquire(name, secrets.token_bytes(16), LONG) for _ in range(30))
            )
            assert [answer.state for answer in answers].count("held") == 1

    async def in_redis(url: str) -> None:
        async with redis_claims(url) as claims:
            await race(claims)

    if store == "memory":
        asyncio.run(race(MemoryClaims()))
    else:
        with running_redis(tmp_path) as server:
            asyncio.run(in_redis(server.url))
