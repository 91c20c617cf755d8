"""The memo's store in Redis: one server, or a cluster by one of its nodes."""

from typing import Any, cast

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

# Redis itself expires entries; its setting `maxmemory` limits their total size.
_TTL_S = 7 * 24 * 3600

# A prefix that an operator can grant to a Redis user: `~mmhash:*`.
_PREFIX = b"mmhash:"

_CLUSTER = "+cluster://"

# The breaker retries, not the client. Options in the URL override these.
_OPTIONS: dict[str, Any] = {
    "socket_timeout": 1.0,
    "socket_connect_timeout": 1.0,
    "retry": Retry(NoBackoff(), 0),
}


class RedisStore:
    """The store at one URL, which connects on first use."""

    def __init__(self, url: str) -> None:
        plain = url.replace(_CLUSTER, "://", 1)
        try:
            if plain != url:
                self._client: Redis | RedisCluster = RedisCluster.from_url(plain, **_OPTIONS)
            else:
                self._client = Redis.from_url(plain, **_OPTIONS)
                pool = self._client.connection_pool
                # Does not connect yet, but refuses unknown options.
                pool.connection_class(**pool.connection_kwargs)
        except (TypeError, ValueError):
            # Without the message, which may quote part of a password with an unescaped slash.
            raise ValueError(
                "redis-py does not accept this URL: write redis://user:password@host:6379/0?option="
                "value, and escape / ? # @ % in a user or password"
            ) from None

    async def get(self, name: bytes) -> bytes | None:
        """Return the value, or None."""
        return cast("bytes | None", await self._client.get(_PREFIX + name))

    async def put(self, name: bytes, value: bytes) -> None:
        """Store the value."""
        await self._client.set(_PREFIX + name, value, ex=_TTL_S)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()
