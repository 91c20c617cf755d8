"""A run: a source to a Parquet file of keys, begun or gone on with."""

from collections.abc import Callable
from pathlib import Path

from mmhash import __version__
from mmhash.bulk.pool import hash_shards
from mmhash.bulk.results import open_parts
from mmhash.bulk.sources import Source
from mmhash.bulk.work import Options
from mmhash.framing import SPEC_VERSION


def hash_source(
    source: Source,
    out: Path,
    options: Options,
    processes: int,
    advance: Callable[[int, int], object],
) -> None:
    """Write the keys of a source to `out`; tell `advance` of items and bytes that are done."""
    about = {
        "mmhash": __version__,
        "spec": str(SPEC_VERSION),
        "source": source.identity,
        "algorithm": options.algorithm,
        "of": options.of,
        "engines": ",".join(options.engines),
    }
    shards = dict(enumerate(source.shards))
    with open_parts(out, source.names, options, about) as parts:
        if parts is None:
            return
        for number in parts.numbers():
            done = shards.pop(number)
            advance(len(done.names), done.nbytes)
        for number, rows in hash_shards(shards, options, processes):
            shard = shards[number]
            parts.keep(number, shard.names, rows)
            advance(len(shard.names), shard.nbytes)
        parts.join(len(source.shards))
