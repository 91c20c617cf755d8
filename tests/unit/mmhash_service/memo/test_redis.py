"""The clients of redis-py for a URL of the memo."""

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import SSLConnection
from redis.asyncio.sentinel import SentinelConnectionPool, SentinelManagedSSLConnection

from mmhash_service.memo.address import parse_redis_url
from mmhash_service.memo.redis import create_clients


def clients_of_url(url: str) -> list[Redis | RedisCluster]:
    address = parse_redis_url(url)
    return create_clients(address)


def test_a_url_names_hosts_a_user_a_database_and_tls() -> None:
    (one,) = clients_of_url("rediss://me:secret@[::1]:7000/3?ssl_cert_reqs=none")
    assert isinstance(one, Redis)
    options = one.connection_pool.connection_kwargs
    assert (options["host"], options["port"], options["db"]) == ("::1", 7000, 3)
    assert (options["username"], options["password"]) == ("me", "secret")
    assert issubclass(one.connection_pool.connection_class, SSLConnection)

    (cluster,) = clients_of_url("rediss+cluster://me:secret@a.example:7000,b.example")
    assert isinstance(cluster, RedisCluster)
    assert [(node.host, node.port) for node in cluster.startup_nodes] == [
        ("a.example", 7000),
        ("b.example", 6379),
    ]
    assert cluster.connection_kwargs["password"] == "secret"
    assert issubclass(cluster.connection_kwargs["connection_class"], SSLConnection)

    master, *sentinels = clients_of_url("rediss+sentinel://me:secret@a:7000,[::1]/pictures/2")
    assert isinstance(master, Redis)
    pool = master.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "pictures"
    assert (pool.connection_kwargs["password"], pool.connection_kwargs["db"]) == ("secret", 2)
    assert issubclass(pool.connection_class, SentinelManagedSSLConnection)
    hosts = []
    for client in sentinels:
        assert isinstance(client, Redis)
        options = client.connection_pool.connection_kwargs
        hosts.append((options["host"], options["port"]))
        assert issubclass(client.connection_pool.connection_class, SSLConnection)
        assert options.get("password") is None
    assert hosts == [("a", 7000), ("::1", 6379)]
