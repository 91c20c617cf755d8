"""The Parquet file with the keys, and the finished shards until it is complete.

OUT.parts/ holds one file for each shard, each written to a temporary file and renamed. Its checksum
covers its content, its position and the options of the run: a part that is damaged, swapped or of
another run is hashed again. Only the run that holds the directory's lock writes there. When all
shards are finished, they are joined to OUT, which appears by one rename; then the directory is
removed.

Only OUT is synced to the disk. After a loss of power a part may be empty or damaged, which its
checksum shows; to sync those of 100 000 small files took 0.6 s.

pyarrow is imported with `tables` when the first shard is finished: the next ones are hashed
meanwhile.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import starmap
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from mmhash.bulk.checked import DamagedError, framed, read_checked, remove, rename_on_disk
from mmhash.bulk.work import Options, Row, Shard
from mmhash.errors import InputValueError, MMHashError

_MANIFEST_FILE = "manifest.json"

_RESUME_OTHER = (
    "run that command again to resume it, remove this to start a new run, or give another --out"
)
_KEEP_RESULT = "it is complete: give another --out, or remove it"
_MANIFEST_PURPOSE = "manifest"
_SUFFIXES = {".arrow", ".tmp"}


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
        columns: Sequence[str],
        about: dict[str, str],
        result: dict[str, str] | None,
        warn: Callable[[str], None],
    ) -> None:
        self.result = result
        self._out = out
        self._folder = _folder_of(out)
        self._about = about
        self._columns = columns
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
        from mmhash.bulk.tables import pack  # noqa: PLC0415  (as above)

        named = [(name, *row) for name, row in zip(shard.names, rows, strict=True) if row]
        purpose = self._purpose(number, shard.identity)
        with _written(self._path(number, shard.identity)) as file:
            file.writelines(framed(pack(named, self._columns), purpose))

    def join(self, identities: Sequence[str]) -> None:
        """Join all shards in order to one file."""
        from mmhash.bulk.tables import write_result  # noqa: PLC0415  (as above)

        about = self._about | {"source": _source_of(identities)}
        numbered = enumerate(identities)
        joined = self._folder / "joined.tmp"
        remove(joined)
        with joined.open("xb") as file:
            write_result(file, starmap(self._read, numbered), self._columns, about)
        rename_on_disk(joined, self._out)
        self._remove_folder()

    def check_result(self, identities: Sequence[str]) -> None:
        """Check that the joined file is of these shards and undamaged; remove the parts."""
        from mmhash.bulk.tables import check_pages  # noqa: PLC0415  (as above)

        about = self._about | {"source": _source_of(identities)}
        _compare(self.result or {}, about, self._out, _KEEP_RESULT)
        check_pages(self._out)
        self._remove_folder()

    def _remove_folder(self) -> None:
        try:
            remove(self._folder)
        except MMHashError as error:  # the result is complete
            self._warn(str(error))

    def _path(self, number: int, identity: str) -> Path:
        return self._folder / f"{number}-{identity}.arrow"

    def _purpose(self, number: int, identity: str) -> str:
        return json.dumps([number, identity, self._about], sort_keys=True)

    def _read(self, number: int, identity: str) -> memoryview:
        path = self._path(number, identity)
        try:
            return read_checked(path, self._purpose(number, identity))
        except (DamagedError, FileNotFoundError) as error:
            why = "gone" if isinstance(error, FileNotFoundError) else f"damaged ({error})"
            raise MMHashError(
                f"{path} was valid and is now {why}: run the same command again, which hashes its"
                " items again"
            ) from error


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
            from mmhash.bulk.tables import read_about  # noqa: PLC0415  (as above)

            result = read_about(out)
            _compare(result, about, out, _KEEP_RESULT)
        else:
            _begin(folder, about, warn)
        yield ShardStore(out, (names, *options.columns), about, result, warn)


def _begin(folder: Path, about: dict[str, str], warn: Callable[[str], None]) -> None:
    """Check that the finished parts are of this run, or start a new one."""
    manifest = folder / _MANIFEST_FILE
    try:
        stored = json.loads(bytes(read_checked(manifest, _MANIFEST_PURPOSE)))
    except FileNotFoundError:
        left = list(folder.iterdir())  # by a run that was killed while it removed them
        foreign = [path.name for path in left if path.suffix not in _SUFFIXES]
        if foreign and not _has_parts(folder):
            raise MMHashError(
                f"{folder} is no folder of a run, because it has {foreign[0]!r} and no part:"
                " remove it, or give another --out"
            ) from None
        for path in left:
            remove(path)
    except DamagedError as error:
        # The checksum of each part covers the options of its run.
        warn(f"{manifest} is damaged ({error}): only parts with the same options are kept")
        remove(manifest)
    else:
        if _has_parts(folder):
            _compare(stored, about, folder, _RESUME_OTHER)
            return
    with _written(manifest) as file:
        file.writelines(framed(json.dumps(about).encode(), _MANIFEST_PURPOSE))


def _folder_of(out: Path) -> Path:
    return out.with_name(out.name + ".parts")


def _source_of(identities: Sequence[str]) -> str:
    """Return one identity for all shards."""
    return blake3("".join(identities).encode()).hexdigest(length=16)


def _compare(stored: dict[str, str], about: dict[str, str], path: Path, advice: str) -> None:
    differing = [name for name in about if stored.get(name) != about[name]]
    if differing:
        # Whether others are skipped follows from --of and the source.
        named = [name for name in differing if name != "skips_others"] or ["kind of source"]
        raise InputValueError(
            f"{path} is of another run, with another {' and '.join(named)}: {advice}"
        )


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
            # After join(), another run may have created its directory: _lock() compares them.
            if _lock(descriptor, folder) and not _has_parts(folder):  # nothing to resume
                for left in (folder / _MANIFEST_FILE, *folder.glob("*.tmp")):
                    remove(left)
            with suppress(OSError):  # removed, or not empty
                folder.rmdir()
    finally:
        os.close(descriptor)


def _has_parts(folder: Path) -> bool:
    return any(folder.glob("*.arrow"))


def _lock(descriptor: int, folder: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The run that held the lock may have removed the directory, and another run created one.
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except (BlockingIOError, FileNotFoundError):
        return False


@contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    """Write a file atomically: it appears when it is complete."""
    temporary = path.with_suffix(".tmp")
    remove(temporary)
    with temporary.open("xb") as file:
        yield file
    temporary.replace(path)
