"""The row of each item: its digest, key and engine hashes, or the error instead."""

import io
import json
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import mmhash
from mmhash.algorithms import ALGORITHM_SPECS
from mmhash.cpu import hash_bytes
from mmhash.digest import Algorithm, Digest
from mmhash.errors import InputTypeError, InputValueError, MMHashError, is_shortage
from mmhash.framing import frame
from mmhash.io.images import NotAnImageError, read_image_file

# How many files are opened ahead, and how many bytes of each the kernel reads ahead.
AHEAD = 64
FIRST = 128 << 10
# The size of the read buffer, which fits in a core's caches.
BUFFER = 1 << 20

Row = tuple[Any, ...]
"""The values of an item's columns, in the order of `BulkOptions.columns`; () for a skipped file."""

_Item = TypeVar("_Item")


class BulkOptions(NamedTuple):
    """The options of a run; each engine has its release."""

    algorithm: Algorithm = "blake3"
    of: Literal["bytes", "pixels"] = "bytes"
    engines: tuple[str, ...] = ()
    # True for a folder of mixed files: files that are not images get no row.
    skips_others: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the result, without the name of the item."""
        return ("kind", "nbytes", "digest", "key", *self.engines, "error")


class Counts(NamedTuple):
    """The number of rows, and how many of them are errors."""

    items: int
    errors: int


class _File(NamedTuple):
    descriptor: int
    size: int


class _Content(NamedTuple):
    """The columns of a row that describe an item's content."""

    kind: str
    nbytes: int
    digest: Digest
    key: Digest
    exif_orientation: int = 1


def hash_files(paths: Iterable[str], options: BulkOptions) -> list[Row]:
    """Return the rows of files; each file is one item."""
    if options.of == "pixels":
        return _rows(_open_files(paths), partial(_hash_image_file, options=options), options)
    buffer = memoryview(bytearray(BUFFER))
    hash_file = partial(_hash_file, algorithm=options.algorithm, buffer=buffer)
    return _rows(_open_files(paths), hash_file, options)


def hash_values(values: Iterable[Any], options: BulkOptions) -> list[Row]:
    """Return the rows of pyarrow scalars that hold bytes."""
    return _rows(values, partial(_hash_value, options=options), options)


def failed(error: Exception, options: BulkOptions) -> Row:
    """Return the row of an item that could not be hashed."""
    why = error.strerror if isinstance(error, OSError) else error
    return (*(None for _ in options.columns[:-1]), f"{type(error).__name__}: {why}")


def _rows(
    items: Iterable[_Item | Exception],
    content_of: Callable[[_Item], _Content],
    options: BulkOptions,
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


def _open_files(paths: Iterable[str]) -> Iterator[_File | Exception]:
    """Yield each file for the caller to close, or the error from opening it."""
    ahead: deque[_File | Exception] = deque()
    try:
        for path in paths:
            while isinstance(file := _open(path), OSError) and is_shortage(file):
                if not ahead:
                    raise file
                yield ahead.popleft()  # the caller closes this file, and another can be opened
            ahead.append(file)
            if len(ahead) > AHEAD:
                yield ahead.popleft()
        while ahead:
            yield ahead.popleft()
    finally:
        for file in ahead:
            if isinstance(file, _File):
                os.close(file.descriptor)


def _open(path: str) -> _File | Exception:
    """Open a regular file. Reading a pipe or device could block or never end."""
    try:
        path.encode()  # the result is UTF-8: two names that are not UTF-8 could become equal
        # Opening a device may have side effects. Path.stat() is slower.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            return InputTypeError("not a regular file")
        # The name may refer to another file by now, so never wait for the writer of a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return InputTypeError("not a regular file")
        if hasattr(os, "posix_fadvise"):  # not on macOS
            os.posix_fadvise(descriptor, 0, FIRST, os.POSIX_FADV_WILLNEED)
    except (OSError, ValueError) as error:  # ValueError: this name is invalid for any file
        return error
    return _File(descriptor, status.st_size)


def _hash_file(file: _File, algorithm: Algorithm, buffer: memoryview) -> _Content:
    try:
        digest, nbytes = _hash_read(*file, algorithm, buffer)
    finally:
        os.close(file.descriptor)
    return _Content("bytes", nbytes, digest, frame("bytes", "", (), digest))


def _hash_read(
    descriptor: int, size: int, algorithm: Algorithm, buffer: memoryview
) -> tuple[Digest, int]:
    count = nbytes = os.readv(descriptor, [buffer])
    if count == size < len(buffer):  # the fast path for most files
        return hash_bytes(buffer[:count], algorithm, 1), count
    state = ALGORITHM_SPECS[algorithm].new_state(1)
    while count:
        state.update(buffer[:count])
        count = os.readv(descriptor, [buffer])
        nbytes += count
    return Digest(algorithm, state.digest()), nbytes


def _hash_image_file(file: _File, options: BulkOptions) -> _Content:
    with os.fdopen(file.descriptor, "rb") as content:
        return _hash_image(content, options)


def _hash_value(value: Any, options: BulkOptions) -> _Content:
    data = value.as_buffer()
    if data is None:
        raise InputValueError("the value is null")
    if options.of == "pixels":
        return _hash_image(io.BufferedReader(io.BytesIO(data)), options)
    digest = hash_bytes(memoryview(data), options.algorithm, 1)
    return _Content("bytes", data.size, digest, frame("bytes", "", (), digest))


def _hash_image(file: io.BufferedReader, options: BulkOptions) -> _Content:
    image = read_image_file(file)
    digest = hash_bytes(memoryview(image.pixels), options.algorithm, 1)
    nbytes = len(image.pixels)
    return _Content("image", nbytes, digest, image.key(digest), image.exif_orientation)
