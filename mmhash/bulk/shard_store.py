"""The Parquet file with the keys, and its finished shards until it is whole.

OUT.parts/ holds a file a shard, each written aside and renamed. Its checksum covers its content,
its place and the options of its run: a part that is damaged, swapped or of another run is hashed
again. Only a run that holds the folder's lock writes there. When all shards are there they are
joined to OUT, which appears by one rename; then the folder goes.
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

import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from mmhash.bulk.checked import DamagedError, framed, read_checked, remove
from mmhash.bulk.work import Options, Row, Shard
from mmhash.errors import InputValueError, MMHashError

ABOUT = b"mmhash"
# Shards that make a row group of the result.
JOINED = 64

_INTEGERS = {"row", "nbytes"}


_MANIFEST = "manifest"


def table_of(rows: Sequence[Row], schema: Any) -> Any:
    """Rows as a pyarrow table."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pa.array(values, of.type) for values, of in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def schema_of(columns: Sequence[str]) -> Any:
    """The schema of a result with these columns."""
    return pa.schema([(name, pa.int64() if name in _INTEGERS else pa.string()) for name in columns])


def _ignore(line: str) -> None:
    """Say nothing."""


class ShardStore:
    """The finished shards of a run; `about` is what another run must share to go on with them.

    `result` is what the joined file says of its run, if there is one already. `warn` is given a
    line for each part that is damaged.
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
        """Whether a shard is finished. A damaged one is removed: it is not."""
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
        """Make a shard one of the finished."""
        named = [(name, *row) for name, row in zip(shard.names, rows, strict=True)]
        content = pa.BufferOutputStream()
        with pa.ipc.new_file(content, self._schema) as writer:
            writer.write_table(table_of(named, self._schema))
        purpose = self._purpose(number, shard.identity)
        with _written(self._path(number, shard.identity)) as file:
            file.writelines(framed(memoryview(content.getvalue()), purpose))

    def join(self, identities: Sequence[str]) -> None:
        """Make all shards one file, in order."""
        about = self._about | {"source": _source_of(identities)}
        schema = self._schema.with_metadata({ABOUT: json.dumps(about)})
        with (
            _written(self._out, aside=self._folder / "joined.tmp") as file,
            pq.ParquetWriter(
                file,
                schema,
                compression="zstd",
                use_dictionary=["kind", "error"],
                write_page_checksum=True,
            ) as writer,
        ):
            numbered = enumerate(identities)
            while some := [self._read(*one) for one in islice(numbered, JOINED)]:
                writer.write_table(pa.concat_tables(some))
        shutil.rmtree(self._folder)

    def check_result(self, identities: Sequence[str]) -> None:
        """See that the joined file is of these shards and whole, and leave nothing beside it."""
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
                f"{path} was good and is now {why}: run the same command again, which hashes its"
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
    """The parts of this run, begun or gone on with, locked."""
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
    """See that what is finished is of this run, or begin anew."""
    manifest = folder / "manifest.json"
    try:
        _compare(json.loads(bytes(read_checked(manifest, _MANIFEST))), about, folder)
    except FileNotFoundError:
        for left in folder.iterdir():  # by a run that was killed while it removed them
            remove(left)
    except DamagedError as error:
        # What is finished says by itself of which run it is.
        warn(f"{manifest} is damaged ({error}): only parts with these options are gone on with")
        remove(manifest)
    else:
        return
    with _written(manifest) as file:
        file.writelines(framed(json.dumps(about).encode(), _MANIFEST))


def count_results(out: Path) -> tuple[int, int]:
    """How many items a result has, and how many of them have an error for a key."""
    with _readable(out), pq.ParquetFile(out) as file:
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
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputValueError(
            f"{out} exists and is no result of bulk, or a damaged one: give another --out"
        ) from error
    return about


@contextmanager
def _readable(out: Path) -> Iterator[None]:
    """Say that a result is damaged if it cannot be read."""
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
    """Hold the folder, which is made, for one process; the lock goes with the process."""
    try:
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileExistsError, NotADirectoryError) as error:
        raise MMHashError(
            f"{folder} is no folder of a run: remove it, or give another --out"
        ) from error
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
    remove(aside)
    with aside.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
