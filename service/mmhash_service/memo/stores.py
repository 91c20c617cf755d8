"""The store behind the memo: the setting `memo_url`."""

from typing import Protocol


class Store(Protocol):
    """A key-value store outside this process. Any method may raise any exception."""

    async def get(self, name: bytes) -> bytes | None:
        """Return the value, or None."""

    async def put(self, name: bytes, value: bytes) -> None:
        """Store the value."""

    async def close(self) -> None:
        """Close all connections."""


_REDIS = ("redis", "rediss", "redis+cluster", "rediss+cluster")


def scheme_of(url: str) -> str:
    """Return the scheme of a valid URL, which is safe to show."""
    return url.partition(":")[0]


def create_store(url: str) -> Store:
    """Return the store that a URL names, which connects on first use.

    Errors show no part of the URL, which may contain a password.
    """
    if scheme_of(url) not in _REDIS or ":" not in url:
        raise ValueError("write redis://HOST:PORT/DB or redis+cluster://HOST:PORT; rediss is TLS")
    from mmhash_service.memo.redis import RedisStore  # noqa: PLC0415  (slow to import)

    return RedisStore(url)
