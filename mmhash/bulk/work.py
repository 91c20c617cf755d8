"""Hashing of the items of a shard, and the rows of the result."""

import io
import json
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import mmhash
from mmhash.algorithms import ALGORITHM_SPECS
from mmhash.bulk.files import File, open_files
from mmhash.cpu import hash_bytes
from mmhash.digest import Algorithm, Digest
from mmhash.errors import InputValueError, MMHashError, is_shortage
from mmhash.framing import frame
from mmhash.io.images import NotAnImageError, read_image_file

# Two threads read and hash 2 GiB from the page cache in 0.58 s of CPU through 1 MiB each, in 0.61
# through 512 KiB and in 0.66 through 128 KiB; mapped files take 0.75, because of page faults, and a
# buffer of 32 MiB, which stays in no core's cache, takes more.
BUFFER = 1 << 20
# Several threads need more than a buffer: with a mapped file, two of them reach 4.4 GB/s. A slice
# has enough for two threads of xxh3 (states.XXH3_SHARE); one thread hashes smaller files. If a file
# is truncated meanwhile, the pool has it read by one thread.
SLICE = 64 << 20

Row = tuple[Any, ...]
"""The values of an item's columns, in the order of `Options.columns`; () for a skipped file."""

_Item = TypeVar("_Item")


class Options(NamedTuple):
    """The options of a run; engines are given with their releases."""

    algorithm: Algorithm = "blake3"
    of: Literal["bytes", "pixels"] = "bytes"
    engines: tuple[str, ...] = ()
    # Files that are not images have no row, because the source is a folder of files of any kind.
    skips_others: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the result, without the item's name."""
        return ("kind", "nbytes", "digest", "key", *self.engines, "error")


class Shard(NamedTuple):
    """Items that one process hashes together, and whose rows are stored together.

    `identity` differs if the shard has changed since it was stored.
    """

    names: Sequence[str] | range
    nbytes: int
    identity: str
    hash: Callable[[Options, int], list[Row]]


class _Content(NamedTuple):
    """The columns of a row that describe an item's content."""

    kind: str
    nbytes: int
    digest: Digest
    key: Digest
    exif_orientation: int = 1


def hash_files(paths: Iterable[str], options: Options, threads: int = 1) -> list[Row]:
    """Return the rows of files, each of which is one item."""
    if options.of == "pixels":
        hash_image = partial(_hash_image_file, options=options, threads=threads)
        return _rows(open_files(paths), hash_image, options)
    buffer = memoryview(bytearray(BUFFER))
    hash_file = partial(_hash_file, algorithm=options.algorithm, threads=threads, buffer=buffer)
    return _rows(open_files(paths), hash_file, options)


def hash_values(values: Iterable[Any], options: Options, threads: int = 1) -> list[Row]:
    """Return the rows of pyarrow's scalars of bytes."""
    return _rows(values, partial(_hash_value, options=options, threads=threads), options)


def failed(error: Exception, options: Options) -> Row:
    """Return the row of an item that cannot be hashed."""
    why = error.strerror if isinstance(error, OSError) else error
    return (*(None for _ in options.columns[:-1]), f"{type(error).__name__}: {why}")


def _rows(
    items: Iterable[_Item | Exception], content_of: Callable[[_Item], _Content], options: Options
) -> list[Row]:
    rows: list[Row] = []
    for item in items:
        try:
            if isinstance(item, Exception):
                raise item
            kind, nbytes, digest, key, orientation = content_of(item)
        except (OSError, ValueError, MMHashError) as error:
            if is_shortage(error):
                raise
            is_skipped = options.skips_others and isinstance(error, NotAnImageError)
            rows.append(() if is_skipped else failed(error, options))
        else:
            fields = (
                json.dumps(mmhash.engines.request_fields(key, engine, exif_orientation=orientation))
                for engine in options.engines
            )
            rows.append((kind, nbytes, digest.hex(), key.hex(), *fields, None))
    return rows


def _hash_file(file: File, algorithm: Algorithm, threads: int, buffer: memoryview) -> _Content:
    descriptor, size = file
    try:
        if threads > 1 and size > SLICE:
            digest, nbytes = _hash_mapped(descriptor, algorithm, threads)
        else:
            digest, nbytes = _hash_read(descriptor, size, algorithm, buffer)
    finally:
        os.close(descriptor)
    return _Content("bytes", nbytes, digest, frame("bytes", "", (), digest))


def _hash_image_file(file: File, options: Options, threads: int) -> _Content:
    with os.fdopen(file.descriptor, "rb") as content:
        return _hash_image(content, options, threads)


def _hash_value(value: Any, options: Options, threads: int) -> _Content:
    data = value.as_buffer()
    if data is None:
        raise InputValueError("the value is null")
    if options.of == "pixels":
        return _hash_image(io.BufferedReader(io.BytesIO(data)), options, threads)
    digest = _hash_bytes(memoryview(data), options.algorithm, threads)
    return _Content("bytes", data.size, digest, frame("bytes", "", (), digest))


def _hash_image(file: io.BufferedReader, options: Options, threads: int) -> _Content:
    image = read_image_file(file)
    digest = _hash_bytes(memoryview(image.pixels), options.algorithm, threads)
    nbytes = len(image.pixels)
    return _Content("image", nbytes, digest, image.key(digest), image.exif_orientation)


def _hash_bytes(data: memoryview, algorithm: Algorithm, threads: int) -> Digest:
    return hash_bytes(data, algorithm, threads if len(data) > SLICE else 1)


def _hash_read(
    descriptor: int, size: int, algorithm: Algorithm, buffer: memoryview
) -> tuple[Digest, int]:
    count = os.readv(descriptor, [buffer])
    if count == size < len(buffer):  # the fast path for most files
        return hash_bytes(buffer[:count], algorithm), count
    count = nbytes = count + _fill(descriptor, buffer[count:])
    state = ALGORITHM_SPECS[algorithm].new_state(1)
    while count:
        state.update(buffer[:count])
        count = _fill(descriptor, buffer)
        nbytes += count
    return Digest(algorithm, state.digest()), nbytes


def _fill(descriptor: int, buffer: memoryview) -> int:
    """Read until the buffer is full or the file ends; return the number of bytes."""
    filled = 0
    while filled < len(buffer) and (count := os.readv(descriptor, [buffer[filled:]])):
        filled += count
    return filled


def _hash_mapped(descriptor: int, algorithm: Algorithm, threads: int) -> tuple[Digest, int]:
    state = ALGORITHM_SPECS[algorithm].new_state(threads)
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
        for start in range(0, len(data), SLICE):
            with data[start : start + SLICE] as part:
                state.update(part)
        return Digest(algorithm, state.digest()), len(data)
