"""The table of claim stores: at the memo's store if it can run scripts, else in memory."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mmhash_service.claims.memory import MemoryClaims
from mmhash_service.memo.address import REDIS_SCHEMES

if TYPE_CHECKING:
    from mmhash_service.claims.claims import Claims
    from mmhash_service.memo.breaker import Breaker, Store


class ClaimStoreType(NamedTuple):
    """A kind of claim store."""

    schemes: frozenset[str]
    """The schemes of `memo_url` that have it."""
    create: Callable[["Breaker", "Store"], "Claims"]


def _create_redis(breaker: "Breaker", store: "Store") -> "Claims":
    from mmhash_service.claims.redis import RedisClaims  # noqa: PLC0415  (60 ms)
    from mmhash_service.memo.redis import RedisStore  # noqa: PLC0415

    assert isinstance(store, RedisStore)  # noqa: S101  (both tables have the same schemes)
    return RedisClaims(breaker, store)


CLAIM_STORES = (ClaimStoreType(frozenset(REDIS_SCHEMES), _create_redis),)


def create_claims(scheme: str, breaker: "Breaker | None", store: "Store | None") -> "Claims":
    """Return the claims for a memo whose store has this scheme; in memory if it has none."""
    for kind in CLAIM_STORES:
        if scheme in kind.schemes and breaker is not None and store is not None:
            return kind.create(breaker, store)
    return MemoryClaims()
