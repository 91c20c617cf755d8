"""Keys for an event loop that must not stall: bounded in bytes and threads, first in, first out."""

from mmhash.executor.hasher import AsyncHasher

__all__ = ["AsyncHasher"]
