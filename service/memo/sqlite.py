"""Entries in an SQLite file, which several processes may share; the oldest go first.

The file is never deleted or replaced here: whatever it is, it was an operator who named it.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from mmhash_service.memo.entries import MAX_SEALED

T = TypeVar("T")

# A file that somebody made may have views and triggers without an end: so long, and so many
# instructions of SQLite's machine between two looks at the clock.
_PATIENCE_S = 1.0
_STEPS = 10_000

# No row is longer than an entry with its name, and no statement takes more memory than that and
# the page cache: this process uses SQLite for nothing else.
_MAX_ROW = MAX_SEALED + 4096
_MAX_HEAP = 16 << 20

# Connections of the process that this one was forked from: SQLite allows neither to use nor to
# close them here.
_of_parent: list[object] = []

# How long to wait for another process that writes, which takes it 0.1 ms.
_BUSY_S = 0.02

_TABLE = """
CREATE TABLE IF NOT EXISTS mmhash_memo (age INTEGER PRIMARY KEY, name BLOB UNIQUE, value BLOB)
"""
# A blob's length is in its head; a text would be read to count its characters.
_GET = """
SELECT value FROM mmhash_memo
WHERE name = ? AND CASE typeof(value) WHEN 'blob' THEN length(value) <= ? END
"""
_USED = """
SELECT (page_count - freelist_count) * page_size
FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""
# So few at a time that others hardly wait.
_EVICT = """
DELETE FROM mmhash_memo WHERE age IN (SELECT age FROM mmhash_memo ORDER BY age LIMIT 64)
"""


class Sqlite:
    """The file, in a thread that works for nobody else."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._file = _File(path)

    async def get(self, name: bytes) -> bytes | None:
        """The value, if there is one."""
        return await self._file.run(partial(_get, name))

    async def put(self, name: bytes, value: bytes) -> None:
        """Keep the value, and let go of the oldest until there is room."""
        await self._file.run(partial(_put, name, value, self._max_bytes))

    async def drop(self) -> None:
        """Do nothing: what a file holds does not depend on the connection."""

    async def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        file, self._file = self._file, _File(self._path)
        await file.close()

    def abandon(self) -> None:
        """Leave the connection to the process that this one was forked from."""
        _of_parent.append(self._file)
        self._file = _File(self._path)


class _File:
    """A connection, opened when it is first used, and its thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mmhash-memo")
        self._connection: sqlite3.Connection | None = None
        self._started = 0.0

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            self._started = time.monotonic()
            try:
                return work(self._connect())
            except (sqlite3.Error, MemoryError):
                # The next time it is opened anew: it may be another file then.
                self._disconnect()
                raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            # A FIFO has no end, and opening a device may do anything.
            if self._path.exists() and not self._path.is_file():
                raise sqlite3.OperationalError("not a regular file")
            # Each statement is a transaction of its own, but where one is begun.
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            self._connection = connection
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ROW)
            connection.set_progress_handler(self._is_late, _STEPS)
            connection.execute(f"PRAGMA hard_heap_limit = {_MAX_HEAP}")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA journal_mode = WAL")
            # No entry is waited for: a crash of the host may cost the last ones, not the file.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(_TABLE)
        return self._connection

    def _is_late(self) -> bool:
        return time.monotonic() > self._started + _PATIENCE_S

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _get(name: bytes, connection: sqlite3.Connection) -> bytes | None:
    found: tuple[bytes] | None = connection.execute(_GET, (name, MAX_SEALED)).fetchone()
    return None if found is None else found[0]


def _put(name: bytes, value: bytes, max_bytes: int, connection: sqlite3.Connection) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "INSERT OR REPLACE INTO mmhash_memo (name, value) VALUES (?, ?)", (name, value)
        )
        while connection.execute(_USED).fetchone()[0] > max_bytes:
            if connection.execute(_EVICT).rowcount == 0:
                break
