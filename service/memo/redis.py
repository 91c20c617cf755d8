"""Entries in Redis: one server, a cluster, or the master that sentinels know."""

from typing import Any

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import InvalidResponse, ResponseError

from mmhash_service.memo.address import RedisAddress
from mmhash_service.memo.breaker import MAX_AT_ONCE, PROBE_S
from mmhash_service.memo.entries import MAX_SEALED
from mmhash_service.memo.replies import CHECKED

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
    # In RESP2 nothing comes that was not asked for.
    "protocol": 2,
    # One command at a time: replies to any other are bytes that nobody asked for.
    "driver_info": None,
}

# Connections of the process that this one was forked from: never closed here, for a TLS connection
# would say goodbye on the parent's socket.
_of_parent: list[object] = []


class RedisStore:
    """The store at that address. Connections are made when they are needed."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._clients: list[Redis | RedisCluster] = []

    async def get(self, name: bytes) -> bytes | None:
        """The value, if there is one."""
        try:
            value = await self._client().getrange(_PREFIX + name, 0, MAX_SEALED)
        except ResponseError:
            await self.drop()
            raise
        if not isinstance(value, bytes):
            await self.drop()
            raise InvalidResponse("a reply that is no string")
        return value or None  # no entry is empty

    async def put(self, name: bytes, value: bytes) -> None:
        """Keep the value."""
        if await self._client().set(_PREFIX + name, value, ex=_TTL_S) is not True:
            await self.drop()
            raise InvalidResponse("a reply that is not OK")

    async def drop(self) -> None:
        """Close the connections that nobody uses: their replies may be to other commands."""
        for client in self._clients:
            if isinstance(client, RedisCluster):
                for node in client.get_nodes():
                    node.update_active_connections_for_reconnect()
                    await node.disconnect_free_connections()
            else:
                await client.connection_pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        """Close all connections, and forget what the servers said of each other."""
        clients, self._clients = self._clients, []
        for client in clients:
            await client.aclose()

    def abandon(self) -> None:
        """Leave the connections to the process that this one was forked from."""
        _of_parent.extend(self._clients)
        self._clients = []

    def _client(self) -> Redis | RedisCluster:
        self._clients = self._clients or clients_of(self._address)
        return self._clients[0]


def clients_of(address: RedisAddress) -> list[Redis | RedisCluster]:
    """The client that keeps the entries, and behind it those of the sentinels, if there are any."""
    tls = {} if address.tls is None else {"ssl": True, **address.tls}
    options = {**_OPTIONS, **tls, "username": address.username, "password": address.password}
    if address.topology == "cluster":
        nodes = [ClusterNode(*node) for node in address.nodes]
        cluster = RedisCluster(startup_nodes=nodes, **options)
        kwargs = cluster.connection_kwargs  # those of nodes that it will hear of
        kwargs["connection_class"] = CHECKED[kwargs["connection_class"]]
        for node in cluster.startup_nodes:
            node.connection_class = kwargs["connection_class"]
        return [cluster]
    options["db"] = address.database
    if address.topology == "sentinel":
        sentinel = Sentinel(  # type: ignore[no-untyped-call]
            address.nodes, sentinel_kwargs={**tls, **_OPTIONS}, **options
        )
        clients = [sentinel.master_for(address.service), *sentinel.sentinels]
    else:
        ((host, port),) = address.nodes
        clients = [Redis(host=host, port=port, **options)]
    for client in clients:
        pool = client.connection_pool
        pool.connection_class = CHECKED[pool.connection_class]
    return clients
