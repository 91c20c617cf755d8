"""The memo's store in an SQLite file, which several processes may share.

The oldest entries are evicted first. A file that is not a database is left untouched: the operator
may have named the wrong file.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# How long to wait for a lock, which another process holds while writing an entry.
_BUSY_S = 0.02

_TABLE = """
CREATE TABLE IF NOT EXISTS mmhash_memo (age INTEGER PRIMARY KEY, name BLOB UNIQUE, value BLOB)
"""
_GET = "SELECT CAST(value AS BLOB) FROM mmhash_memo WHERE name = ?"
_USED = """
SELECT (page_count - freelist_count) * page_size
FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""
_INSERT = "INSERT OR REPLACE INTO mmhash_memo (name, value) VALUES (?, ?)"
# Few rows at a time, to keep other processes from waiting.
_EVICT = """
DELETE FROM mmhash_memo WHERE age IN (SELECT age FROM mmhash_memo ORDER BY age LIMIT 64)
"""


class SqliteStore:
    """The store in one file, used from its own thread and opened on first use."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mmhash-memo")
        self._connection: sqlite3.Connection | None = None

    async def get(self, name: bytes) -> bytes | None:
        """Return the value, or None."""
        return await self._run(partial(_get, name))

    async def put(self, name: bytes, value: bytes) -> None:
        """Store the value, and evict the oldest entries beyond the size limit."""
        await self._run(partial(_put, name, value, self._max_bytes))

    async def close(self) -> None:
        """Close the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            try:
                return work(self._connect())
            except sqlite3.Error:
                # Reopen the file next time: it may have been replaced.
                self._disconnect()
                raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            # Autocommit, except inside an explicit BEGIN.
            self._connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            # No fsync per entry: a host crash may lose the last entries, but not the file.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute(_TABLE)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _get(name: bytes, connection: sqlite3.Connection) -> bytes | None:
    row: tuple[bytes] | None = connection.execute(_GET, (name,)).fetchone()
    return None if row is None else row[0]


def _put(name: bytes, value: bytes, max_bytes: int, connection: sqlite3.Connection) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        while connection.execute(_USED).fetchone()[0] + len(name) + len(value) > max_bytes:
            if connection.execute(_EVICT).rowcount == 0:
                return  # the entry is larger than the limit
        connection.execute(_INSERT, (name, value))
