"""The store behind the memo: one Redis server, or a cluster by one of its nodes."""

from typing import Any, cast

from mmhash_service.settings import Settings

# Redis itself removes entries: after this time, or earlier if its `maxmemory` is reached.
_TTL_S = 7 * 24 * 3600

# An operator can limit a Redis user to these keys: `~mmhash:*`.
_PREFIX = b"mmhash:"

_SCHEMES = frozenset({"redis", "rediss", "redis+cluster", "rediss+cluster"})
_CLUSTER = "+cluster://"

# Options in the URL override these.
_OPTIONS = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}


def find_store(settings: Settings) -> "RedisStore | None":
    """Return the store that the settings name, not connected yet, or None."""
    return None if settings.memo_url is None else RedisStore(settings.memo_url.get_secret_value())


class RedisStore:
    """The store at a URL. It connects on first use, and any method may raise any exception."""

    def __init__(self, url: str) -> None:
        """Raise ValueError for a wrong URL, without showing it: it may contain a password."""
        from redis.asyncio import Redis, RedisCluster  # noqa: PLC0415  (slow, and rarely needed)
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415

        self.scheme = url.partition(":")[0]
        if self.scheme not in _SCHEMES or ":" not in url:
            raise ValueError(
                "write redis://HOST:PORT/DB or redis+cluster://HOST:PORT; rediss is TLS"
            )
        # The breaker retries, so the client must not.
        options: dict[str, Any] = {"retry": Retry(NoBackoff(), 0), **_OPTIONS}
        plain = url.replace(_CLUSTER, "://", 1)
        try:
            if plain != url:
                self._client: Redis | RedisCluster = RedisCluster.from_url(plain, **options)
            else:
                self._client = Redis.from_url(plain, **options)
                pool = self._client.connection_pool
                # Refuses unknown options now. It does not connect.
                pool.connection_class(**pool.connection_kwargs)
        except (TypeError, ValueError):
            # Drop the cause, which may quote part of a password with an unescaped slash.
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
