"""A Parquet file, a list or a result that stops a bulk run, or makes it leave out items.

Each item has a row, by its key or its error; a source that cannot be read is named.
"""

import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mmhash
from mmhash.bulk.export import PARQUET, export
from mmhash.bulk.pool import Pool
from mmhash.bulk.run import hash_source
from mmhash.bulk.sources import read_source
from mmhash.bulk.work import Options, hash_files
from mmhash.errors import InputValueError


class Quiet:
    """A watch that shows nothing."""

    def found(self, shard: Any) -> None:
        """Ignore it."""

    def done(self, shard: Any) -> None:
        """Ignore it."""

    def warn(self, line: str) -> None:
        """Ignore it."""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1) as started:
        yield started


def rows_of(source: str, pool: Pool, folder: Path, column: str | None = None) -> list[Any]:
    out = folder / f"out{PARQUET}"
    hash_source(read_source(source, column), out, Options(), pool, Quiet())
    rows: list[Any] = pq.read_table(out).to_pylist()
    return rows


def write(path: Path, *columns: tuple[str, Any]) -> str:
    names, arrays = zip(*columns, strict=True)
    pq.write_table(pa.Table.from_arrays(list(arrays), names=list(names)), path)
    return str(path)


def large_gif(frames: int) -> bytes:
    """A GIF of 9000x9000 pixels, each frame of which changes only one: 15 bytes."""
    head = b"GIF89a" + struct.pack("<HHBBB", 9000, 9000, 0x80, 0, 0) + bytes(6)
    frame = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + bytes([2, 2, 0x44, 1, 0])
    return head + frame * frames + b";"


def latin(text: bytes) -> Any:
    """A column of one text, which is not UTF-8."""
    ends = (0).to_bytes(4, "little") + len(text).to_bytes(4, "little")
    return pa.StringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(text))


def test_a_list_in_a_pipe_is_read_from_its_beginning(tmp_path: Path, pool: Pool) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    lines = f"{tmp_path / 'a'}\n".encode() * 3
    writer = threading.Thread(target=pipe.write_bytes, args=(lines,), daemon=True)
    writer.start()
    rows = rows_of(str(pipe), pool, tmp_path)
    assert [row["key"] for row in rows] == [mmhash.key(b"abc").hex()] * 3
    writer.join()


@pytest.mark.parametrize("of", ["bytes", "pixels"])
@pytest.mark.parametrize("kind", ["pipe", "device", "terminal", "link to a pipe", "folder"])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, kind: str, of: str) -> None:
    path, pipe = tmp_path / "other", tmp_path / "pipe"
    os.mkfifo(pipe)
    match kind:
        case "pipe":
            path = pipe
        case "link to a pipe":
            path.symlink_to(pipe)
        case "device":
            path.symlink_to("/dev/zero")
        case "terminal":
            path.symlink_to("/dev/ptmx")  # each opening makes a terminal
        case "folder":
            path.mkdir()
    opened = []
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
    (row,) = hash_files([str(path)], Options(of=of))
    assert "not a regular file" in row[-1]
    assert str(path) not in opened


def test_names_that_are_not_utf_8_have_a_row_each(tmp_path: Path, pool: Pool) -> None:
    source = write(tmp_path / "names.parquet", ("p", latin(b"a\xff")))
    (row,) = rows_of(source, pool, tmp_path, "p")
    assert row["key"] is None
    assert "UnicodeEncodeError" in row["error"]


@pytest.mark.parametrize(
    "columns",
    [
        [("x", pa.array([b"a"])), ("x", pa.array([b"b"]))],
        [("x", pa.array(["a"])), ("x", pa.array(["b"]))],
        [("y", pa.array([{"z": b"a"}])), ("y.z", pa.array([b"b"]))],
    ],
    ids=["bytes", "paths", "a member"],
)
def test_two_columns_of_one_name_are_refused(tmp_path: Path, columns: Any) -> None:
    source = write(tmp_path / "twice.parquet", *columns)
    with pytest.raises(InputValueError, match="not that of one column"):
        read_source(source, columns[-1][0])


def test_a_damaged_column_of_paths_is_named(tmp_path: Path) -> None:
    path = tmp_path / "paths.parquet"
    table = pa.table({"p": pa.array(["a" * 50] * 999)})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    start = content.index(b"a" * 50) + 50
    content[start : start + 4] = b"\xff\xff\xff\x7f"
    path.write_bytes(content)
    with pytest.raises(InputValueError, match="damaged"):
        list(read_source(str(path), "p").shards)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_result_that_is_no_file_is_refused(tmp_path: Path, pool: Pool, kind: str) -> None:
    out = tmp_path / f"out{PARQUET}"
    if kind == "pipe":
        os.mkfifo(out)
    elif kind == "device":
        out.symlink_to("/dev/zero")
    else:
        out.mkdir()
    (tmp_path / "list").write_bytes(b"a\n")
    with pytest.raises(InputValueError, match="no result of bulk"):
        rows_of(str(tmp_path / "list"), pool, tmp_path)


def test_an_animation_counts_with_all_of_its_frames(tmp_path: Path) -> None:
    """One of 15 kB, with a thousand frames, took all memory."""
    (tmp_path / "a.gif").write_bytes(large_gif(frames=40))
    (row,) = hash_files([str(tmp_path / "a.gif")], Options(of="pixels"))
    assert row[-1].startswith("LimitError: ")
    (tmp_path / "b.gif").write_bytes(large_gif(frames=1))
    (row,) = hash_files([str(tmp_path / "b.gif")], Options(of="pixels"))
    assert (row[1], row[-1]) == (9000 * 9000, None)


def truncate_once_it_is_mapped(path: Path, length: int) -> None:
    while not any(str(path) in maps for maps in read_maps()):
        time.sleep(0.01)
    os.truncate(path, length)


def read_maps() -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield (process / "maps").read_text()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_a_file_that_is_truncated_while_it_is_mapped(tmp_path: Path) -> None:
    """Its process gets SIGBUS; the run ended with it, each time that it was resumed."""
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(b"abc")
        file.truncate(1 << 40)  # longer than any core hashes in the time of the test
    truncating = threading.Thread(target=truncate_once_it_is_mapped, args=(path, 3), daemon=True)
    truncating.start()
    (tmp_path / "list").write_bytes(os.fsencode(path) + b"\n")
    with Pool(2) as two:
        rows = rows_of(str(tmp_path / "list"), two, tmp_path)
    truncating.join()
    assert [(row["nbytes"], row["key"]) for row in rows] == [(3, mmhash.key(b"abc").hex())]


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv"])
def test_a_link_in_place_of_a_temporary_file_is_not_followed(tmp_path: Path, name: str) -> None:
    """In a folder that others may write to, it would have named any file of the user."""
    other = tmp_path / "precious"
    other.write_bytes(b"precious")
    out = tmp_path / name
    parquet = tmp_path / f"{name}{PARQUET}"
    out.with_name(f"{name}.tmp").symlink_to(other)
    pq.write_table(pa.table({"path": ["a"]}), parquet)
    export(parquet, out)
    assert other.read_bytes() == b"precious"
    assert b"a" in out.read_bytes()
    assert not out.is_symlink()
