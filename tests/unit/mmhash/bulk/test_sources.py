"""The items of a source, cut into shards; another source has another identity."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mmhash
from mmhash.bulk import shards
from mmhash.bulk.items import BulkOptions, Row
from mmhash.bulk.shards import Shard
from mmhash.bulk.sources import read_source


def names(shards: Iterable[Shard]) -> list[str | int]:
    return [name for shard in shards for name in shard.names]


def names_and_rows(shards: Iterable[Shard]) -> tuple[list[str | int], list[Row]]:
    shards = list(shards)
    return names(shards), [row for shard in shards for row in shard.hash(BulkOptions())]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    for name in ("b", "a/z", "a/y", "c"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (folder / "link").symlink_to("b")
    (folder / "loop").symlink_to(".")
    os.mkfifo(folder / "fifo")
    return folder


def test_a_folder_is_its_regular_files_sorted(folder: Path) -> None:
    found, rows = names_and_rows(read_source(str(folder), None))
    assert found == [f"{folder}/{name}" for name in ("a/y", "a/z", "b", "c")]
    assert [row[3] for row in rows] == [
        mmhash.key(name).hex() for name in (b"a/y", b"a/z", b"b", b"c")
    ]


def test_an_unreadable_folder_is_a_row_with_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("/a"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)  # root may read all
    found, rows = names_and_rows(read_source(str(folder), None))
    assert found == [f"{folder}/{name}" for name in ("a", "b", "c")]
    assert [row[-1] is None for row in rows] == [False, True, True]


def test_a_list_in_a_pipe_is_read_from_its_beginning(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a\nb\n",), daemon=True)
    writer.start()
    assert names(read_source(str(pipe), None)) == ["a", "b"]
    writer.join()


def test_a_file_that_is_no_list_is_refused(tmp_path: Path) -> None:
    """An image in place of a list is a mistake, and so are the names of `find -print0`."""
    for content in (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"a.png\0b.png\0"):
        (tmp_path / "source").write_bytes(content)
        with pytest.raises(
            mmhash.InputValueError, match=r"not a list of paths, one per line: line \d"
        ):
            names(read_source(str(tmp_path / "source"), None))


def test_shards_are_bounded_by_items_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD_ITEMS", 3)
    monkeypatch.setattr(shards, "SHARD_BYTES", 100)
    for number, size in enumerate([1, 1, 1, 1, 500, 60, 40, 1, 0, 0, 100]):
        (tmp_path / f"{number:02}").write_bytes(bytes(size))
    source = read_source(str(tmp_path), None)
    assert [(len(shard.names), shard.nbytes) for shard in source] == [
        (3, 3), (1, 1), (1, 500), (2, 100), (3, 1), (1, 100),
    ]  # fmt: skip


def test_parquet_of_paths_is_as_a_list(folder: Path) -> None:
    paths = [f"{folder}/c", f"{folder}/b", None]
    file = str(folder.parent / "paths.parquet")
    pq.write_table(pa.table({"file": pa.array(paths, pa.string())}), file)
    found, rows = names_and_rows(read_source(file, "file"))
    assert found == [*paths[:2], ""]
    assert [row[-1] is None for row in rows] == [True, True, False]


def test_an_unusable_source_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    pq.write_table(pa.table({"id": [1], "data": [b""], "name": [""]}), file)
    for column in (None, "id", "nothing"):
        with pytest.raises(mmhash.InputError, match="with --column: data, name"):
            read_source(str(file), column)
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(mmhash.InputError, match="not a Parquet file"):
        read_source(str(file), "data")
    file.write_bytes(b"x" * 5000)
    with pytest.raises(mmhash.InputError, match="line 1 is over 4096 bytes"):
        names(read_source(str(file), None))
    file.write_bytes(b"path\n")
    with pytest.raises(mmhash.InputError, match="no Parquet file"):
        read_source(str(file), "data")


def test_a_changed_source_has_another_identity(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD_ITEMS", 2)
    file = folder / "b"

    def identities() -> tuple[str, ...]:
        return tuple(shard.identity for shard in read_source(str(folder), None))

    seen = [identities()]
    assert identities() == seen[0]
    file.write_bytes(b"longer")
    seen.append(identities())
    os.utime(file, ns=(0, 0))
    seen.append(identities())
    file.rename(folder / "bb")
    seen.append(identities())
    (folder / "bb").unlink()
    seen.append(identities())
    assert len(set(seen)) == 5
    assert {first for first, *_ in seen} == {seen[0][0]}  # of a/y and a/z, which stayed
