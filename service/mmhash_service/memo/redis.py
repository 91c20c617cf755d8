"""The memo's store in Redis: one server, a cluster, or the master that sentinels name."""

from typing import Any

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import InvalidResponse, ResponseError

from mmhash_service.memo.address import RedisAddress
from mmhash_service.memo.breaker import MAX_CONCURRENT, PROBE_S
from mmhash_service.memo.entries import MAX_SEALED
from mmhash_service.memo.replies import CHECKED

# Redis expires entries itself; its own setting `maxmemory` limits their size.
_TTL_S = 7 * 24 * 3600

# A prefix that an operator can grant to a Redis user: `~mmhash:*`.
_PREFIX = b"mmhash:"

# The breaker does time-outs, retries and limits, so the client does not.
_OPTIONS: dict[str, Any] = {
    "socket_timeout": PROBE_S,
    "socket_connect_timeout": PROBE_S,
    "retry": Retry(NoBackoff(), 0),
    # Lookups, writes and the probe.
    "max_connections": 2 * MAX_CONCURRENT + 1,
    # RESP2 has no push messages.
    "protocol": 2,
    # No CLIENT SETINFO beside a command: the connection expects exactly one reply at a time.
    "driver_info": None,
}


class RedisStore:
    """The store at one address. It connects when it is first used."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._clients: list[Redis | RedisCluster] = []

    async def get(self, name: bytes) -> bytes | None:
        """Return the value, or None."""
        try:
            value = await self._client().getrange(_PREFIX + name, 0, MAX_SEALED)
        except ResponseError:
            await self.drop()
            raise
        if not isinstance(value, bytes):
            await self.drop()
            raise InvalidResponse("the reply is not a string")
        # GETRANGE returns an empty string for a missing key; no entry is empty.
        return value or None

    async def put(self, name: bytes, value: bytes) -> None:
        """Store the value."""
        if await self._client().set(_PREFIX + name, value, ex=_TTL_S) is not True:
            await self.drop()
            raise InvalidResponse("the reply is not OK")

    async def drop(self) -> None:
        """Close idle connections: their replies may be out of sync."""
        for client in self._clients:
            if isinstance(client, RedisCluster):
                for node in client.get_nodes():
                    node.update_active_connections_for_reconnect()
                    await node.disconnect_free_connections()
            else:
                await client.connection_pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        """Close all connections and discard the clients, with their cached cluster topology."""
        clients, self._clients = self._clients, []
        for client in clients:
            await client.aclose()

    def _client(self) -> Redis | RedisCluster:
        self._clients = self._clients or create_clients(self._address)
        return self._clients[0]


def create_clients(address: RedisAddress) -> list[Redis | RedisCluster]:
    """Return the client for the entries, followed by those of the sentinels, if any."""
    tls = {} if address.tls is None else {"ssl": True, **address.tls}
    options = {**_OPTIONS, **tls, "username": address.username, "password": address.password}
    if address.topology == "cluster":
        nodes = [ClusterNode(*node) for node in address.nodes]
        cluster = RedisCluster(startup_nodes=nodes, **options)
        kwargs = cluster.connection_kwargs  # used for nodes that it discovers
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
