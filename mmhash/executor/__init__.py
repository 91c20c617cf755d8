"""Keys for an event loop that must not stall: bounded, in order, placed by measurement."""

from mmhash.executor.hasher import AsyncHasher, Stats
from mmhash.executor.lazy import LazyKey

__all__ = ["AsyncHasher", "LazyKey", "Stats"]
