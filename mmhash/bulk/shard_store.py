"""The Parquet file with the keys, and the finished shards until it is complete.

OUT.parts/ holds one file for each shard, each written to a temporary file and renamed. Its checksum
covers its content, its position and the options of the run: a part that is damaged, swapped or of
another run is hashed again. Only the run that holds the directory's lock writes there. When all
shards are finished, they are joined to OUT, which appears by one rename; then the directory is
removed.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from mmhash.bulk.checked import DamagedError, framed, read_checked, remove
from mmhash.bulk.work import Options, Row, Shard
from mmhash.errors import InputValueError, MMHashError

ABOUT = b"mmhash"
# Shards in a row group of the result.
JOINED = 64

_INTEGERS = {"row", "nbytes"}
_MANIFEST = "manifest"


def table_of(rows: Sequence[Row], schema: Any) -> Any:
    """Return rows as a pyarrow table."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [
        _array_of(values, is_text=pa.types.is_string(field.type))
        for values, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array_of(values: Sequence[Any], *, is_text: bool) -> Any:
    """Return values as a pyarrow array of texts, or of integers; None is null.

    From buffers, because `pa.array` imports pandas, if it is installed: 0.5 s.
    """
    count = len(values)
    valid = np.array([value is not None for value in values], bool)
    mask = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if not is_text:
        numbers = np.array([0 if value is None else value for value in values], "<i8")
        return pa.Array.from_buffers(pa.int64(), count, [mask, pa.py_buffer(numbers)])
    texts = [b"" if value is None else value.encode() for value in values]
    ends = np.cumsum([0, *map(len, texts)], dtype="<i4")
    return pa.StringArray.from_buffers(
        count, pa.py_buffer(ends), pa.py_buffer(b"".join(texts)), mask
    )


def schema_of(columns: Sequence[str]) -> Any:
    """Return the schema of a result with these columns."""
    return pa.schema([(name, pa.int64() if name in _INTEGERS else pa.string()) for name in columns])


def _ignore(line: str) -> None:
    """Do nothing."""


class ShardStore:
    """The finished shards of a run; another run with the same `about` can resume with them.

    `result` is the `about` in the joined file, if that exists already. `warn` is called with a line
    for each damaged part.
    """

    def __init__(
        self,
        out: Path,
        schema: Any,
        about: dict[str, str],
        result: dict[str, str] | None,
        warn: Callable[[str], None],
    ) -> None:
        self.result = result
        self._out = out
        self._folder = _folder_of(out)
        self._about = about
        self._schema = schema
        self._warn = warn

    def have(self, number: int, identity: str) -> bool:
        """Return True if a shard is finished; a damaged one is removed, and is not."""
        path = self._path(number, identity)
        try:
            read_checked(path, self._purpose(number, identity))
        except FileNotFoundError:
            return False
        except DamagedError as error:
            self._warn(f"{path} is damaged ({error}): its items are hashed again")
            remove(path)
            return False
        return True

    def keep(self, number: int, shard: Shard, rows: Sequence[Row]) -> None:
        """Store the rows of a finished shard."""
        named = [(name, *row) for name, row in zip(shard.names, rows, strict=True) if row]
        content = pa.BufferOutputStream()
        with pa.ipc.new_file(content, self._schema) as writer:
            writer.write_table(table_of(named, self._schema))
        purpose = self._purpose(number, shard.identity)
        with _written(self._path(number, shard.identity)) as file:
            file.writelines(framed(memoryview(content.getvalue()), purpose))

    def join(self, identities: Sequence[str]) -> None:
        """Join all shards in order to one file."""
        about = self._about | {"source": _source_of(identities)}
        schema = self._schema.with_metadata({ABOUT: json.dumps(about)})
        with (
            _written(self._out, temporary=self._folder / "joined.tmp") as file,
            pq.ParquetWriter(
                file,
                schema,
                compression="zstd",
                use_dictionary=["kind", "error"],
                write_page_checksum=True,
            ) as writer,
        ):
            numbered = enumerate(identities)
            while tables := [self._read(*one) for one in islice(numbered, JOINED)]:
                writer.write_table(pa.concat_tables(tables))
        shutil.rmtree(self._folder)

    def check_result(self, identities: Sequence[str]) -> None:
        """Check that the joined file is of these shards and undamaged; remove the parts."""
        about = self._about | {"source": _source_of(identities)}
        _compare(self.result or {}, about, self._out)
        with (
            _readable(self._out),
            pq.ParquetFile(self._out, page_checksum_verification=True) as file,
        ):
            for _ in file.iter_batches():
                pass
        shutil.rmtree(self._folder)

    def _path(self, number: int, identity: str) -> Path:
        return self._folder / f"{number}-{identity}.arrow"

    def _purpose(self, number: int, identity: str) -> str:
        return json.dumps([number, identity, self._about], sort_keys=True)

    def _read(self, number: int, identity: str) -> Any:
        path = self._path(number, identity)
        try:
            content = read_checked(path, self._purpose(number, identity))
        except (DamagedError, FileNotFoundError) as error:
            why = "gone" if isinstance(error, FileNotFoundError) else f"damaged ({error})"
            raise MMHashError(
                f"{path} was valid and is now {why}: run the same command again, which hashes its"
                " items again"
            ) from error
        return pa.ipc.open_file(pa.py_buffer(content)).read_all()


@contextmanager
def open_shard_store(
    out: Path,
    names: str,
    options: Options,
    about: dict[str, str],
    warn: Callable[[str], None] = _ignore,
) -> Iterator[ShardStore]:
    """Open and lock the store of this run, new or resumed."""
    folder = _folder_of(out)
    with _locked(folder):
        result = None
        if out.exists():
            result = _about(out)
            _compare(result, about, out)
        else:
            _begin(folder, about, warn)
        yield ShardStore(out, schema_of((names, *options.columns)), about, result, warn)


def _begin(folder: Path, about: dict[str, str], warn: Callable[[str], None]) -> None:
    """Check that the finished parts are of this run, or start a new one."""
    manifest = folder / "manifest.json"
    try:
        _compare(json.loads(bytes(read_checked(manifest, _MANIFEST))), about, folder)
    except FileNotFoundError:
        for path in folder.iterdir():  # left by a run that was killed while it removed them
            remove(path)
    except DamagedError as error:
        # The checksum of each part covers the options of its run.
        warn(f"{manifest} is damaged ({error}): only parts with the same options are kept")
        remove(manifest)
    else:
        return
    with _written(manifest) as file:
        file.writelines(framed(json.dumps(about).encode(), _MANIFEST))


def count_results(out: Path) -> tuple[int, int]:
    """Return the numbers of items and of errors in a result."""
    with _readable(out), pq.ParquetFile(out) as file:
        errors = sum(
            len(batch) - batch.column(0).null_count
            for batch in file.iter_batches(columns=["error"])
        )
        return file.metadata.num_rows, errors


def _folder_of(out: Path) -> Path:
    return out.with_name(out.name + ".parts")


def _source_of(identities: Sequence[str]) -> str:
    """Return one identity for all shards."""
    return blake3("".join(identities).encode()).hexdigest(length=16)


def _compare(stored: dict[str, str], about: dict[str, str], path: Path) -> None:
    differing = [name for name in about if stored.get(name) != about[name]]
    if differing:
        raise InputValueError(
            f"{path} is of another run, with another {' and '.join(differing)}: run that command"
            " again to resume it, remove this to start a new run, or give another --out"
        )


def _about(out: Path) -> dict[str, str]:
    try:
        metadata = pq.read_schema(out).metadata if out.is_file() else {}  # a FIFO would never end
        about: dict[str, str] = json.loads(metadata[ABOUT])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputValueError(
            f"{out} exists and is no result of bulk, or a damaged one: give another --out"
        ) from error
    return about


@contextmanager
def _readable(out: Path) -> Iterator[None]:
    """Raise an error that says that a result is damaged if it cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise MMHashError(
            f"{out} is damaged: remove it and run the same command again ({_first_line(error)})"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Create the directory and lock it; the kernel releases the lock when the process exits."""
    try:
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileExistsError, NotADirectoryError) as error:
        raise MMHashError(
            f"{folder} is no folder of a run: remove it, or give another --out"
        ) from error
    try:
        if not _lock(descriptor, folder):
            raise MMHashError(f"{folder} is in use by another run")
        try:
            yield
        finally:
            with suppress(OSError):  # removed, or not empty: it is empty if this run was refused
                folder.rmdir()
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The run that held the lock may have removed the directory, and another run created one.
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except (BlockingIOError, FileNotFoundError):
        return False


@contextmanager
def _written(path: Path, temporary: Path | None = None) -> Iterator[BinaryIO]:
    """Write a file atomically: it appears when it is complete and on the disk."""
    temporary = temporary or path.with_suffix(".tmp")
    remove(temporary)
    with temporary.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
