"""The result of a run: a folder of Parquet files, one for each finished shard.

A part is written under a temporary name and then renamed. A resumed run keeps every part it can
read. The name includes the identity of the shard, so a changed shard gets a new part.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mmhash.bulk.items import BulkOptions, Counts
from mmhash.bulk.shards import Shard
from mmhash.errors import InputValueError, MMHashError, is_shortage

_NAME = re.compile(r"part-\d{8}-[0-9a-f]{32}\.(parquet|tmp)")


def name_of(number: int, shard: Shard) -> str:
    """Return the name of a shard's part. Parts sort by name in the order of the source."""
    return f"part-{number:08}-{shard.identity}.parquet"


def write_part(path: Path, shard: Shard, options: BulkOptions, about: dict[str, str]) -> Counts:
    """Hash a shard and write its part."""
    from mmhash.bulk.tables import write_rows  # noqa: PLC0415  (imports pyarrow)

    hashed = zip(shard.names, shard.hash(options), strict=True)
    rows = [(name, *row) for name, row in hashed if row]
    names_column = "row" if isinstance(shard.names, range) else "path"
    temporary = path.with_suffix(".tmp")
    write_rows(temporary, rows, (names_column, *options.columns), about)
    # not synced: a part cut short by a power loss is unreadable, and the next run replaces it
    temporary.replace(path)
    return Counts(len(rows), sum(row[-1] is not None for row in rows))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create the folder and lock it against other runs.

    Remove the folder at the end if it is empty.
    """
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise MMHashError(f"{folder} is in use by another run") from error
        yield
    finally:
        with suppress(OSError):
            folder.rmdir()
        os.close(descriptor)


def finished_parts(folder: Path, about: dict[str, str]) -> dict[str, Counts]:
    """Return the parts that earlier runs of this command finished; remove all other parts."""
    parts: dict[str, Counts] = {}
    for path in sorted(folder.iterdir()):
        from mmhash.bulk.tables import read_about  # noqa: PLC0415  (imports pyarrow)

        if not (match := _NAME.fullmatch(path.name)):
            raise InputValueError(f"{folder} has other files ({path.name}): give another --out")
        if match[1] == "tmp":
            path.unlink()
            continue
        try:
            stored, parts[path.name] = read_about(path)
        except (OSError, ValueError) as error:
            if is_shortage(error):
                raise
            path.unlink()  # damaged
            continue
        if differing := [name for name in about if stored.get(name) != about[name]]:
            raise InputValueError(
                f"{folder} is of another run, with another {' and '.join(differing)}: remove the"
                " folder, or give another --out"
            )
    return parts
