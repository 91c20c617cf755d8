"""The table of stores behind the memo: the form of each URL, its parser and its store class.

Settings validation, the memo and docs/memo.md read it. A new store is one module and one row.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from mmhash_service.memo.address import (
    RedisAddress,
    SqliteAddress,
    parse_redis_url,
    parse_sqlite_url,
)

if TYPE_CHECKING:
    from mmhash_service.memo.breaker import Store

MAX_URL = 4096

_CONTROL = re.compile(r"[\x00-\x20\x7f-\x9f\ud800-\udfff]")


class StoreType(NamedTuple):
    """A kind of store."""

    form: str
    """The form of its URL."""
    schemes: tuple[str, ...]
    parse: Callable[[str], Any]
    """Returns the address in a URL, or raises ValueError with a message without secrets."""
    create: Callable[[Any, int], "Store"]
    """Returns the store at an address; the number is the setting `memo_bytes`."""
    description: str


def _create_sqlite(address: SqliteAddress, max_bytes: int) -> "Store":
    from mmhash_service.memo.sqlite import SqliteStore  # noqa: PLC0415  (settings only parse)

    return SqliteStore(address.path, max_bytes)


def _create_redis(address: RedisAddress, _max_bytes: int) -> "Store":
    from mmhash_service.memo.redis import RedisStore  # noqa: PLC0415  (60 ms)

    return RedisStore(address)


STORES = (
    StoreType(
        "sqlite:PATH",
        ("sqlite",),
        parse_sqlite_url,
        _create_sqlite,
        "a file that the workers and other services of a host may share; it grows to `memo_bytes` "
        "plus a log of 4 MiB, then the oldest entries are deleted; while another process reads an "
        "old state of the file for long, the log grows to 16 MiB, and then no entries are stored",
    ),
    StoreType(
        "redis://HOST:PORT/DB",
        ("redis", "rediss"),
        parse_redis_url,
        _create_redis,
        "a Redis server, for several replicas",
    ),
    StoreType(
        "redis+cluster://HOST:PORT,HOST:PORT",
        ("redis+cluster", "rediss+cluster"),
        parse_redis_url,
        _create_redis,
        "a Redis Cluster, by some of its nodes",
    ),
    StoreType(
        "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB",
        ("redis+sentinel", "rediss+sentinel"),
        parse_redis_url,
        _create_redis,
        "the master of a service that these sentinels monitor",
    ),
)

_BY_SCHEME = {scheme: store for store in STORES for scheme in store.schemes}


def scheme_of(url: str) -> str:
    """Return the scheme of a valid URL, which is safe to show."""
    return url.partition(":")[0]


def check_memo_url(url: str) -> None:
    """Raise ValueError if the URL is invalid; the message shows no part that may be a password."""
    _parse(url)


def create_store(url: str, max_bytes: int) -> "Store":
    """Return the store that a URL names. It connects when it is first used."""
    store, address = _parse(url)
    return store.create(address, max_bytes)


def _parse(url: str) -> tuple[StoreType, Any]:
    if len(url) > MAX_URL or _CONTROL.search(url):
        raise ValueError(
            f"a memo URL has at most {MAX_URL} characters, and no spaces or control characters"
        )
    store = _BY_SCHEME.get(scheme_of(url))
    if store is None:
        forms = ", ".join(store.form for store in STORES)
        raise ValueError(f"a memo URL has one of the forms {forms}; rediss instead of redis is TLS")
    return store, store.parse(url)
