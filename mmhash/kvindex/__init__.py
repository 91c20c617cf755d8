"""KV events: which blocks the engines' prefix caches hold."""

from mmhash.extras import needs_extra

with needs_extra("kvindex"):
    from mmhash.kvindex.events import Batch, BlocksRemoved, BlocksStored, CacheCleared, parse_batch
    from mmhash.kvindex.index import Index, IndexStats, Match, WorkerStats
    from mmhash.kvindex.source import Worker

__all__ = [
    "Batch",
    "BlocksRemoved",
    "BlocksStored",
    "CacheCleared",
    "Index",
    "IndexStats",
    "Match",
    "Worker",
    "WorkerStats",
    "parse_batch",
]
