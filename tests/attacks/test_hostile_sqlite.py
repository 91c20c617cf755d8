"""A memo's file that is no database, is another program's, or was made to take memory or time.

Rows are weighed before they are read, statements have a time, and only regular files are opened.
"""

import asyncio
import os
import resource
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

import mmhash
from mmhash_service.memo.sqlite import SqliteStore
from tests.support.victim import serving

pytestmark = pytest.mark.slow

TABLE = "CREATE TABLE mmhash_memo (age INTEGER PRIMARY KEY, name BLOB UNIQUE, value BLOB)"
MAKE = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    file.execute(statement)
file.close()
"""
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"


def database(*statements: str) -> Callable[[Path], None]:
    """Make the file in another process: in this one the store has bounded SQLite's memory."""

    def make(path: Path) -> None:
        subprocess.run([sys.executable, "-c", MAKE, str(path), *statements], check=True)

    return make


def bind(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))


def truncated(path: Path) -> None:
    database(TABLE, "INSERT INTO mmhash_memo VALUES (1, x'6e616d65', zeroblob(100000))")(path)
    os.truncate(path, path.stat().st_size // 2)


FILES: dict[str, Callable[[Path], None]] = {
    "a directory": Path.mkdir,
    "a FIFO": os.mkfifo,
    "a socket": bind,
    "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "/dev/random": lambda path: path.symlink_to("/dev/random"),
    "a link to itself": lambda path: path.symlink_to(path),
    "no database": lambda path: path.write_bytes(b"no database" * 9999) and None,
    "a head only": lambda path: path.write_bytes(b"SQLite format 3\0") and None,
    "cut in half": truncated,
    "other columns": database("CREATE TABLE mmhash_memo (a, b)"),
    "a virtual table": database("CREATE VIRTUAL TABLE mmhash_memo USING fts5(name, value)"),
    "a view": database("CREATE VIEW mmhash_memo AS SELECT 1 age, x'6e616d65' name, 'x' value"),
    "a view without an end": database(
        f"CREATE VIEW mmhash_memo AS {ENDLESS} 1 age, x'00' name, 'x' value FROM n"
    ),
    "a trigger without an end": database(
        TABLE,
        "CREATE TABLE sink (i)",
        f"CREATE TRIGGER t AFTER INSERT ON mmhash_memo BEGIN INSERT INTO sink "
        f"SELECT count(*) FROM ({ENDLESS} i FROM n); END",
    ),
    "a blob of 100 MB": database(
        TABLE, "INSERT INTO mmhash_memo VALUES (1, x'6e616d65', zeroblob(100000000))"
    ),
    "a text of 100 MB": database(
        TABLE,
        "INSERT INTO mmhash_memo VALUES (1, x'6e616d65', CAST(zeroblob(100000000) AS TEXT))",
    ),
    "a name of 100 MB": database(
        TABLE, "INSERT INTO mmhash_memo VALUES (1, zeroblob(100000000), x'00')"
    ),
    "a number": database(TABLE, "INSERT INTO mmhash_memo VALUES (1, x'6e616d65', 7)"),
    "null": database(TABLE, "INSERT INTO mmhash_memo VALUES (1, x'6e616d65', NULL)"),
    "UTF-16": database("PRAGMA encoding = 'UTF-16'", TABLE),
    "pages of 64 KiB": database("PRAGMA page_size = 65536", TABLE),
}


@pytest.mark.parametrize("make", FILES.values(), ids=FILES)
def test_a_file_costs_little_memory_and_time(make: Callable[[Path], None], tmp_path: Path) -> None:
    async def ask(store: SqliteStore) -> None:
        for _ in range(2):
            for work in (store.get(b"name"), store.put(b"other", b"value"), store.get(b"other")):
                with suppress(sqlite3.Error, MemoryError, OSError):  # a miss to the breaker
                    assert await work in {None, b"value"}
        await store.close()

    path = tmp_path / "memo"
    make(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    asyncio.run(ask(SqliteStore(path, 1 << 20)))
    assert time.monotonic() - started < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 << 10  # KiB


def test_a_locked_file_costs_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "memo"

    async def ask() -> None:
        store = SqliteStore(path, 1 << 20)
        await store.put(b"name", b"value")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            started = time.monotonic()
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await store.put(b"other", b"value")
            assert time.monotonic() - started < 5
        assert await store.get(b"name") == b"value"
        await store.close()

    asyncio.run(ask())


GROWS = """
CREATE TRIGGER t AFTER INSERT ON mmhash_memo BEGIN
INSERT INTO sink SELECT zeroblob(100000) FROM (
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200) SELECT i FROM n); END
"""
READ = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("BEGIN")
print(file.execute("SELECT count(*) FROM mmhash_memo").fetchone(), flush=True)
sys.stdin.read()
"""


async def fill(store: SqliteStore, count: int) -> int:
    """Store entries of 10 KB; return how many were stored."""
    stored = 0
    for number in range(count):
        with suppress(sqlite3.Error):
            await store.put(number.to_bytes(32), bytes(10_000))
            stored += 1
    return stored


def used_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_trigger_that_writes_does_not_fill_the_disk(tmp_path: Path) -> None:
    async def work() -> None:
        store = SqliteStore(tmp_path / "memo", 1 << 20)
        await fill(store, 20)
        assert used_bytes(tmp_path) < 32 << 20
        await store.close()

    database(TABLE, "CREATE TABLE sink (i)", GROWS)(tmp_path / "memo")
    asyncio.run(work())


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Have another process read the file in one transaction."""
    command = [sys.executable, "-c", READ, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"(1,)\n"
        yield
        reader.communicate()


def test_a_reader_without_an_end_does_not_fill_the_disk(tmp_path: Path) -> None:
    """SQLite's log grows for as long as a process reads what the file was before."""

    async def work() -> None:
        store = SqliteStore(path, 1 << 20)
        await fill(store, 1)
        with reading(path):
            await fill(store, 900)
            assert used_bytes(tmp_path) < 24 << 20  # without the limit 34
            assert await store.get(bytes(32)) in {None, bytes(10_000)}
        while await fill(store, 10) < 10:  # the machine may be busy
            pass
        assert used_bytes(tmp_path) < 8 << 20
        await store.close()

    path = tmp_path / "memo"
    asyncio.run(work())


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "a directory", "/dev/zero", "a link"])
def test_files_beside_it_are_regular_too(tmp_path: Path, kind: str, suffix: str) -> None:
    """SQLite opens them: to open a FIFO waits for ever, and a link names another file."""

    async def work() -> None:
        store = SqliteStore(path, 1 << 20)
        with pytest.raises((sqlite3.Error, OSError)):
            await store.get(b"name")
        await store.close()

    path, other = tmp_path / "memo", tmp_path / "other"
    database("PRAGMA journal_mode = WAL", TABLE)(path)
    other.write_bytes(b"of another program")
    beside = Path(f"{path}{suffix}")
    if kind == "a link":
        beside.symlink_to(other)
    else:
        FILES[kind](beside)
    asyncio.run(asyncio.wait_for(work(), 60))
    assert other.read_bytes() == b"of another program"


@pytest.mark.parametrize(
    "name",
    [
        "a view without an end",
        "a FIFO",
        "a directory",
        "a blob of 100 MB",
    ],
)
def test_the_service_answers_with_such_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "memo"
    FILES[name](path)
    with serving(memo_url=f"sqlite:{path}", memo_bytes=1 << 20) as service:
        for shade in range(6):
            body, image = BytesIO(), Image.new("RGB", (16, 12), (shade, 0, 0))
            image.save(body, "PNG")
            headers = {"content-type": "image/png"}
            answer = service.client.post(
                "/hash?of=pixels", content=body.getvalue(), headers=headers
            )
            (item,) = answer.json()["items"]
            assert item["key"] == mmhash.key(image).hex()
