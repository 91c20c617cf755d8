"""A run: from a source to a Parquet file of keys, started or resumed."""

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
    """Receives the progress of a run."""

    def found(self, shard: Shard) -> None:
        """Add a shard to the total."""

    def done(self, shard: Shard) -> None:
        """Add a shard to the finished ones."""

    def warn(self, line: str) -> None:
        """Report damage that the run repairs."""


def about_of(options: Options) -> dict[str, str]:
    """Return the parameters that must be equal for a run to resume another."""
    return {
        "mmhash": __version__,
        "spec": str(SPEC_VERSION),
        "algorithm": options.algorithm,
        "of": options.of,
        "engines": ",".join(options.engines),
        "skips_others": str(options.skips_others),
    }


def hash_source(source: Source, out: Path, options: Options, pool: Pool, watch: Watch) -> None:
    """Write the keys of a source to `out`."""
    with open_shard_store(out, source.names, options, about_of(options), watch.warn) as store:
        identities: list[str] = []
        if store.result is not None:
            for shard in source.shards:
                watch.found(shard)
                identities.append(shard.identity)
            store.check_result(identities)
            return
        unfinished = _unfinished(source, store, identities, watch)
        for number, shard, rows in pool.hash(unfinished, options):
            store.keep(number, shard, rows)
            watch.done(shard)
        store.join(identities)


def _unfinished(
    source: Source, store: ShardStore, identities: list[str], watch: Watch
) -> Iterator[tuple[int, Shard]]:
    """Yield the unfinished shards; append the identity of every shard to `identities`."""
    for number, shard in enumerate(source.shards):
        identities.append(shard.identity)
        watch.found(shard)
        if store.have(number, shard.identity):
            watch.done(shard)
        else:
            yield number, shard
