"""The memo's store in an SQLite file, which several processes may share.

The oldest entries are evicted first. The file is never deleted or replaced: the operator may have
named the wrong one.
"""

import asyncio
import os
import sqlite3
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from mmhash_service.memo.entries import MAX_SEALED

T = TypeVar("T")

# A hostile file may contain views and triggers that never end. Statements are interrupted after
# this time, checked whenever SQLite's virtual machine has executed this many instructions.
_STATEMENT_TIMEOUT_S = 1.0
_CHECK_INSTRUCTIONS = 10_000

# Limits on a row (an entry with its name) and on the heap (a row and the page cache). The heap
# limit is global to the process, which uses SQLite for nothing else.
_MAX_ROW = MAX_SEALED + 4096
_MAX_HEAP = 16 << 20

# SQLite's log has 4 MiB, but grows for as long as another process reads an old state of the file.
_MAX_LOG = 16 << 20

# For the schema and indexes. The file grows beyond `memo_bytes` by no more, whatever triggers do.
_EXTRA_BYTES = 1 << 20

# The wait for a lock. Another process holds it for 0.1 ms to write an entry.
_BUSY_S = 0.02

_TABLE = """
CREATE TABLE IF NOT EXISTS mmhash_memo (age INTEGER PRIMARY KEY, name BLOB UNIQUE, value BLOB)
"""
# SQLite knows the length of a blob from its header, but reads all of a text to count characters.
_GET = """
SELECT value FROM mmhash_memo
WHERE name = ? AND CASE typeof(value) WHEN 'blob' THEN length(value) <= ? END
"""
_USED = """
SELECT (page_count - freelist_count) * page_size
FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""
_INSERT = "INSERT OR REPLACE INTO mmhash_memo (name, value) VALUES (?, ?)"
# Few rows at a time, so that other processes hardly wait for the lock.
_EVICT = """
DELETE FROM mmhash_memo WHERE age IN (SELECT age FROM mmhash_memo ORDER BY age LIMIT 64)
"""


class SqliteStore:
    """The store in one file, used from a thread of its own."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._file = _File(path, max_bytes)

    async def get(self, name: bytes) -> bytes | None:
        """Return the value, or None."""
        return await self._file.run(partial(_get, name))

    async def put(self, name: bytes, value: bytes) -> None:
        """Store the value, and evict the oldest entries beyond the size limit."""
        await self._file.run(partial(self._put, name, value))

    def _put(self, name: bytes, value: bytes, connection: sqlite3.Connection) -> None:
        _check_log(Path(os.path.realpath(self._path) + "-wal"), connection)
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if _make_room(len(name) + len(value), self._max_bytes, connection):
                connection.execute(_INSERT, (name, value))

    async def drop(self) -> None:
        """Do nothing: replies cannot get out of sync."""

    async def close(self) -> None:
        """Close the file; the next operation reopens it, if no earlier one hangs."""
        file = self._file
        await file.close()
        if self._file is file:
            self._file = _File(self._path, self._max_bytes)


class _File:
    """A connection, opened on first use, and its thread."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mmhash-memo")
        self._connection: sqlite3.Connection | None = None
        self._started = 0.0
        self._closing: asyncio.Future[None] | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            self._started = time.monotonic()
            try:
                return work(self._connect())
            except (sqlite3.Error, MemoryError):
                # Reopen it the next time: the file may have been replaced.
                self._disconnect()
                raise

        if self._closing is not None:
            raise sqlite3.OperationalError("an earlier operation has not returned")
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    async def close(self) -> None:
        """Close it when its operations have returned: on a file system that hangs, never."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().run_in_executor(
                self._thread, self._disconnect
            )
            self._thread.shutdown(wait=False)
        await asyncio.shield(self._closing)

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._check_files()
            # Autocommit, except inside an explicit BEGIN.
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            self._connection = connection
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ROW)
            connection.set_progress_handler(self._is_overdue, _CHECK_INSTRUCTIONS)
            connection.execute(f"PRAGMA hard_heap_limit = {_MAX_HEAP}")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA journal_mode = WAL")
            # No fsync per entry: a crash of the host may lose the last entries, but not the file.
            connection.execute("PRAGMA synchronous = NORMAL")
            (page_size,) = connection.execute("PRAGMA page_size").fetchone()
            most = (self._max_bytes + _EXTRA_BYTES) // page_size
            connection.execute(f"PRAGMA max_page_count = {most}")
            connection.execute(_TABLE)
        return self._connection

    def _check_files(self) -> None:
        """Raise an error if SQLite would open anything that is not a regular file.

        Opening a FIFO blocks, and opening a device may have side effects.
        """
        path = os.path.realpath(self._path)
        for suffix in ("", "-journal", "-wal", "-shm"):
            # One system call: another process may remove the log between two.
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(os.lstat(path + suffix).st_mode):
                    raise sqlite3.OperationalError("not a regular file")

    def _is_overdue(self) -> bool:
        return time.monotonic() > self._started + _STATEMENT_TIMEOUT_S

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _get(name: bytes, connection: sqlite3.Connection) -> bytes | None:
    row: tuple[bytes] | None = connection.execute(_GET, (name, MAX_SEALED)).fetchone()
    return None if row is None else row[0]


def _check_log(path: Path, connection: sqlite3.Connection) -> None:
    """Raise an error if the log is too long and cannot be folded into the file."""
    with suppress(FileNotFoundError):
        if path.stat().st_size > _MAX_LOG:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if path.stat().st_size > _MAX_LOG:
                raise sqlite3.OperationalError("another process keeps the log from being cleared")


def _make_room(nbytes: int, max_bytes: int, connection: sqlite3.Connection) -> bool:
    """Evict the oldest entries until there is room; return False if there is none."""
    while connection.execute(_USED).fetchone()[0] + nbytes > max_bytes:
        if connection.execute(_EVICT).rowcount == 0:
            return False
    return True
