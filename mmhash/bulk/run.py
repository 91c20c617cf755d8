"""A run: a source to a Parquet file of keys, begun or gone on with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from mmhash import __version__
from mmhash.bulk.pool import Pool
from mmhash.bulk.shard_store import ShardStore, open_shard_store
from mmhash.bulk.sources import Source
from mmhash.bulk.work import Options, Shard
from mmhash.framing import SPEC_VERSION


class Watch(Protocol):
    """Is told how far a run is."""

    def found(self, shard: Shard) -> None:
        """There is so much more to do."""

    def done(self, shard: Shard) -> None:
        """So much of it is done."""

    def warn(self, line: str) -> None:
        """Something is damaged that is repaired."""


def about_of(options: Options) -> dict[str, str]:
    """What two runs share if one can go on with the shards of the other."""
    return {
        "mmhash": __version__,
        "spec": str(SPEC_VERSION),
        "algorithm": options.algorithm,
        "of": options.of,
        "engines": ",".join(options.engines),
    }


def hash_source(source: Source, out: Path, options: Options, pool: Pool, watch: Watch) -> None:
    """Write the keys of a source to `out`."""
    with open_shard_store(out, source.names, options, about_of(options), watch.warn) as parts:
        if parts.result is not None:
            parts.check_result([shard.identity for shard in source.shards])
            return
        identities: list[str] = []
        unfinished = _unfinished(source, parts, identities, watch)
        for number, shard, rows in pool.hash(unfinished, options):
            parts.keep(number, shard, rows)
            watch.done(shard)
        parts.join(identities)


def _unfinished(
    source: Source, parts: ShardStore, identities: list[str], watch: Watch
) -> Iterator[tuple[int, Shard]]:
    """The shards that are still to be hashed; of all of them the identities are noted."""
    for number, shard in enumerate(source.shards):
        identities.append(shard.identity)
        watch.found(shard)
        if parts.have(number, shard.identity):
            watch.done(shard)
        else:
            yield number, shard
