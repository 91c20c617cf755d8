"""A store of claims in Redis, behind its breaker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mmhash_service.claims.claims import Claims
from mmhash_service.claims.stores import create_claims
from mmhash_service.memo.breaker import Breaker
from mmhash_service.memo.stores import create_store


@asynccontextmanager
async def redis_claims(url: str) -> AsyncIterator[Claims]:
    """Open the claims of the Redis at that URL."""
    store = create_store(url, 0)
    breaker = Breaker(store)
    await breaker.open()
    yield create_claims("redis", breaker, store)
    await breaker.close()
