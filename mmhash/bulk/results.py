"""The Parquet file with the keys, and its finished shards until it is whole.

OUT.parts/ holds a file a shard, each written aside and renamed: what is there is whole, and by its
name of this very shard. Only a run that holds the folder's lock writes there. When all shards are
there they are joined to OUT, which appears by one rename; then the folder goes.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from mmhash.bulk.work import Options, Row, Shard
from mmhash.errors import InputValueError, MMHashError

ABOUT = b"mmhash"
# Shards that make a row group of the result.
JOINED = 64

_INTEGERS = {"row", "nbytes"}


def table_of(rows: Sequence[Row], schema: Any) -> Any:
    """Rows as a pyarrow table."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pa.array(values, of.type) for values, of in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def schema_of(columns: Sequence[str]) -> Any:
    """The schema of a result with these columns."""
    return pa.schema([(name, pa.int64() if name in _INTEGERS else pa.string()) for name in columns])


class Parts:
    """The finished shards of a run; `about` is what another run must share to go on with them.

    `result` is what the joined file says of its run, if there is one already.
    """

    def __init__(
        self,
        out: Path,
        schema: Any,
        about: dict[str, str],
        result: dict[str, str] | None,
    ) -> None:
        self.result = result
        self._out = out
        self._folder = _folder_of(out)
        self._about = about
        self._schema = schema

    def have(self, number: int, identity: str) -> bool:
        """Whether a shard is finished."""
        return self._path(number, identity).exists()

    def keep(self, number: int, shard: Shard, rows: Sequence[Row]) -> None:
        """Make a shard one of the finished."""
        named = [(name, *row) for name, row in zip(shard.names, rows, strict=True)]
        path = self._path(number, shard.identity)
        with _written(path) as file, pa.ipc.new_file(file, self._schema) as writer:
            writer.write_table(table_of(named, self._schema))

    def join(self, identities: Sequence[str]) -> None:
        """Make all shards one file, in order."""
        about = self._about | {"source": _source_of(identities)}
        schema = self._schema.with_metadata({ABOUT: json.dumps(about)})
        with (
            _written(self._out, aside=self._folder / "joined.tmp") as file,
            pq.ParquetWriter(
                file, schema, compression="zstd", use_dictionary=["kind", "error"]
            ) as writer,
        ):
            numbered = enumerate(identities)
            while some := [self._read(*one) for one in islice(numbered, JOINED)]:
                writer.write_table(pa.concat_tables(some))
        shutil.rmtree(self._folder)

    def check_result(self, identities: Sequence[str]) -> None:
        """See that the joined file is of these shards, and leave nothing beside it."""
        about = self._about | {"source": _source_of(identities)}
        _compare(self.result or {}, about, self._out)
        shutil.rmtree(self._folder)

    def _path(self, number: int, identity: str) -> Path:
        return self._folder / f"{number}-{identity}.arrow"

    def _read(self, number: int, identity: str) -> Any:
        with pa.memory_map(os.fspath(self._path(number, identity))) as file:
            return pa.ipc.open_file(file).read_all()


@contextmanager
def open_parts(out: Path, names: str, options: Options, about: dict[str, str]) -> Iterator[Parts]:
    """The parts of this run, begun or gone on with, locked."""
    folder = _folder_of(out)
    manifest = folder / "manifest.json"
    with _locked(folder):
        result = None
        if out.exists():
            result = _about(out)
            _compare(result, about, out)
        elif manifest.exists():
            _compare(json.loads(manifest.read_bytes()), about, folder)
        else:
            for left in folder.iterdir():  # by a run that was killed while it removed them
                left.unlink()
            with _written(manifest) as file:
                file.write(json.dumps(about).encode())
        yield Parts(out, schema_of((names, *options.columns)), about, result)


def count_results(out: Path) -> tuple[int, int]:
    """How many items a result has, and how many of them have an error for a key."""
    with pq.ParquetFile(out) as file:
        errors = sum(
            len(batch) - batch.column(0).null_count
            for batch in file.iter_batches(columns=["error"])
        )
        return file.metadata.num_rows, errors


def _folder_of(out: Path) -> Path:
    return out.with_name(out.name + ".parts")


def _source_of(identities: Sequence[str]) -> str:
    """All shards in one identity."""
    return blake3("".join(identities).encode()).hexdigest(length=16)


def _compare(found: dict[str, str], about: dict[str, str], where: Path) -> None:
    differing = [name for name in about if found.get(name) != about[name]]
    if differing:
        raise InputValueError(
            f"{where} is of another run, with another {' and '.join(differing)}: run that again to"
            " go on with it, remove it to begin anew, or give another --out"
        )


def _about(out: Path) -> dict[str, str]:
    try:
        about: dict[str, str] = json.loads(pq.read_schema(out).metadata[ABOUT])
    except (ValueError, TypeError, KeyError) as error:
        raise InputValueError(
            f"{out} exists and is no result of bulk: give another --out"
        ) from error
    return about


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder, which is made, for one process; the lock goes with the process."""
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not _lock(descriptor, folder):
            raise MMHashError(f"{folder}: another run is at work there")
        try:
            yield
        finally:
            with suppress(OSError):  # gone, or not empty: only of a run that was refused it is
                folder.rmdir()
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who held it may have removed the folder meanwhile, and another made a new one.
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except (BlockingIOError, FileNotFoundError):
        return False


@contextmanager
def _written(path: Path, aside: Path | None = None) -> Iterator[BinaryIO]:
    """A file that is there as soon as it is whole, and on the disk."""
    aside = aside or path.with_suffix(".tmp")
    with aside.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
