"""KV events: which blocks the engines' prefix caches hold."""

from mmhash.kvindex.events import Batch, BlocksRemoved, BlocksStored, CacheCleared, parse_batch

__all__ = ["Batch", "BlocksRemoved", "BlocksStored", "CacheCleared", "parse_batch"]
