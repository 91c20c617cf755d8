"""Shards: the items that one process hashes together."""

import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from blake3 import blake3

from mmhash.bulk.items import BulkOptions, Row, hash_files

# A killed run loses at most one shard per process. A file larger than this is its own shard.
SHARD_ITEMS = 1024
SHARD_BYTES = 64 << 20

File = tuple[str, os.stat_result | None]
"""A path and its file's status, which is None unless the file is regular and can be looked up."""


class Shard(NamedTuple):
    """Items that one process hashes together. `identity` changes if any of the items changes."""

    names: Sequence[str] | range
    nbytes: int
    identity: str
    hash: Callable[[BulkOptions], list[Row]]


def look_up(path: str) -> File:
    """Return a path and the status of its file. The status is None unless the file is regular."""
    try:
        status = os.stat(path)  # noqa: PTH116  (Path("") is the folder ".")
    except (OSError, ValueError):
        return path, None  # its row gets the reason
    return path, status if stat.S_ISREG(status.st_mode) else None


def shards_of_files(files: Iterable[File]) -> Iterator[Shard]:
    """Yield the shards of files, given their paths and statuses."""
    shard: list[File] = []
    nbytes = 0
    for path, status in files:
        size = status.st_size if status else 0
        if shard and (len(shard) == SHARD_ITEMS or nbytes + size > SHARD_BYTES):
            yield _shard_of(shard, nbytes)
            shard, nbytes = [], 0
        shard.append((path, status))
        nbytes += size
    if shard:
        yield _shard_of(shard, nbytes)


def _shard_of(files: list[File], nbytes: int) -> Shard:
    state = blake3()
    for path, status in files:
        size, time = (status.st_size, status.st_mtime_ns) if status else (-1, -1)
        encoded = os.fsencode(path)
        state.update(struct.pack("<qqq", len(encoded), size, time) + encoded)
    paths = tuple(path for path, _ in files)
    names = [os.fsencode(path).decode(errors="replace") for path in paths]
    return Shard(names, nbytes, state.hexdigest(length=16), partial(hash_files, paths))
