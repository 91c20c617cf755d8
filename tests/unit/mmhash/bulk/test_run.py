"""The run's own lack of descriptors or memory is no item's error: it ends the run, or is waited out."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mmhash
from mmhash.bulk.items import BulkOptions, hash_files
from mmhash.bulk.sources import read_source

ITEMS = 100


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open that many more files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free: list[int] = []
    try:
        while len(free) < count:
            free.append(os.open(os.devnull, os.O_RDONLY))
        next_one = os.open(os.devnull, os.O_RDONLY)
        os.close(next_one)
        for one in free:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def write_files(folder: Path) -> list[str]:
    folder.mkdir()
    for number in range(ITEMS):
        (folder / f"{number:03}").write_bytes(b"%d" % number)
    return [str(path) for path in sorted(folder.iterdir())]


def test_fewer_files_are_opened_ahead_if_there_are_few_descriptors(tmp_path: Path) -> None:
    paths = write_files(tmp_path / "folder")
    for count in (1, 2, 10):
        with descriptors_left(count):
            rows = hash_files(paths, BulkOptions())
        assert [row[3] for row in rows] == [mmhash.key(b"%d" % n).hex() for n in range(ITEMS)]


def test_without_a_descriptor_no_item_gets_an_error(tmp_path: Path) -> None:
    paths = write_files(tmp_path / "folder")
    table = tmp_path / "table.parquet"
    pq.write_table(pa.table({"data": [b"1", b"2"]}), table)
    (row_group,) = read_source(str(table), "data")
    list(read_source(str(tmp_path / "folder"), None))  # imports what they need
    hash_files(paths, BulkOptions())
    calls: list[Callable[[], object]] = [
        lambda: hash_files(paths, BulkOptions()),
        lambda: hash_files(paths, BulkOptions(of="pixels")),
        lambda: row_group.hash(BulkOptions()),
        lambda: list(read_source(str(tmp_path / "folder"), None)),
    ]
    for call in calls:
        with descriptors_left(0), pytest.raises(OSError, match="Too many open files") as caught:
            call()
        assert caught.value.errno == errno.EMFILE
