"""Entries in Redis: one server, a cluster, or the master that sentinels know."""

from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from mmhash_service.memo.breaker import MAX_AT_ONCE, PROBE_S
from mmhash_service.memo.entries import MAX_SEALED

# Redis lets go of what is old by itself; how much it holds is its own setting (maxmemory).
_TTL_S = 7 * 24 * 3600

# So that an operator can tell them, and allow them to a user of Redis: `~mmhash:*`.
_PREFIX = b"mmhash:"

# The breaker bounds each operation, tries again and counts: nothing is left to do for the client.
_OPTIONS: dict[str, Any] = {
    "socket_timeout": PROBE_S,
    "socket_connect_timeout": PROBE_S,
    "retry": Retry(NoBackoff(), 0),
    # Those that read, those that keep, and the probe.
    "max_connections": 2 * MAX_AT_ONCE + 1,
}


class RedisStore:
    """What is behind the URL."""

    def __init__(self, url: str) -> None:
        self._client, *self._sentinels = clients_of(url)

    async def get(self, name: bytes) -> bytes | None:
        """The value, if there is one."""
        value = await self._client.getrange(_PREFIX + name, 0, MAX_SEALED)
        # No entry is empty; and text it would be only for who asks for that.
        return value if value and isinstance(value, bytes) else None

    async def put(self, name: bytes, value: bytes) -> None:
        """Keep the value."""
        await self._client.set(_PREFIX + name, value, ex=_TTL_S)

    async def close(self) -> None:
        """Close all connections."""
        for client in (self._client, *self._sentinels):
            await client.aclose()


def clients_of(url: str) -> list[Redis | RedisCluster]:
    """The client that keeps the entries, and behind it those of the sentinels, if there are any.

    `redis://HOST` is one server, `redis+cluster://HOST,HOST` a cluster of which these are nodes,
    `redis+sentinel://HOST,HOST/SERVICE` what these sentinels say; with `rediss` they speak TLS.
    """
    parts = urlsplit(url)
    scheme, _, topology = parts.scheme.partition("+")
    if not topology:
        return [Redis.from_url(url, **_OPTIONS)]
    user, at, hosts = parts.netloc.rpartition("@")
    nodes = [_node(host) for host in hosts.split(",")]
    service, _, database = parts.path.strip("/").partition("/")
    told: dict[str, Any] = {**parse_url(f"{scheme}://{user}{at}/{database}?{parts.query}")}
    tls = {name: value for name, value in told.items() if name.startswith("ssl")}
    if told.pop("connection_class", None) is SSLConnection:
        tls["ssl"] = True
    options = {**told, **tls, **_OPTIONS}
    if topology == "cluster":
        return [RedisCluster(startup_nodes=[ClusterNode(*node) for node in nodes], **options)]
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        nodes, sentinel_kwargs={**tls, **_OPTIONS}, **options
    )
    return [sentinel.master_for(service), *sentinel.sentinels]


def _node(host: str) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    return parts.hostname or "localhost", parts.port or 6379
