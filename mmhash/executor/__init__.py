"""Computes keys beside an event loop: with bounded memory and threads, first in, first out."""

from mmhash.executor.hasher import AsyncHasher

__all__ = ["AsyncHasher"]
