"""Each kind of claim store."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import pytest

from mmhash_service.claims.claims import Claims
from mmhash_service.claims.memory import MemoryClaims
from tests.support.claims import redis_claims
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
    return partial(redis_claims, request.getfixturevalue("redis_url"))
