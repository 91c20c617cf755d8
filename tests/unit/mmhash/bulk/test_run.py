"""The run's own lack of descriptors or memory is no item's error: it ends the run, or is waited out."""

import errno
import io
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

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


def test_without_memory_no_image_gets_an_error(tmp_path: Path) -> None:
    for suffix in ("png", "jpeg", "gif", "tiff"):  # that of WebP hides the reason
        content = io.BytesIO()
        Image.effect_noise((2000, 2000), 50).save(content, suffix)
        path = tmp_path / suffix
        path.write_bytes(content.getvalue())
        code = f"""
import resource, sys
from mmhash.bulk.items import BulkOptions, hash_files
from PIL import Image
Image.open({str(path)!r}).resize((2, 2)).tobytes()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for more in range(0, 32 << 20, 4 << 20):
    resource.setrlimit(resource.RLIMIT_AS, (used + more, -1))
    try:
        (row,) = hash_files([{str(path)!r}], BulkOptions(of="pixels"))
    except (MemoryError, OSError) as error:
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        assert isinstance(error, MemoryError) or error.errno == 12, error
    else:
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        assert row[-1] is None, row
"""
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
