"""Each kind of claim store."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from mmhash_service.claims.claims import Claims
from mmhash_service.claims.memory import MemoryClaims
from mmhash_service.claims.stores import create_claims
from mmhash_service.memo.breaker import Breaker
from mmhash_service.memo.stores import create_store
from tests.support.patience import be_patient
from tests.support.redis import running_redis

Open = Callable[[], AbstractAsyncContextManager[Claims]]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis server."""
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@asynccontextmanager
async def in_memory() -> AsyncIterator[Claims]:
    yield MemoryClaims()


@pytest.fixture(params=["memory", "redis"], scope="module")
def open_claims(request: pytest.FixtureRequest) -> Open:
    """Open a store of each kind."""
    if request.param == "memory":
        return in_memory
    url: str = request.getfixturevalue("redis_url")

    @asynccontextmanager
    async def in_redis() -> AsyncIterator[Claims]:
        store = create_store(url, 0)
        breaker = Breaker(store)
        await breaker.open()
        yield create_claims("redis", breaker, store)
        await breaker.close()

    return in_redis
