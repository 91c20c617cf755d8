"""Entries in an SQLite file, which several processes may share; the oldest go first.

The file is never deleted or replaced here: whatever it is, it was an operator who named it.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from mmhash_service.memo.entries import MAX_SEALED

T = TypeVar("T")

# How long to wait for another process that writes, which takes it 0.1 ms.
_BUSY_S = 0.02

_TABLE = """
CREATE TABLE IF NOT EXISTS mmhash_memo (age INTEGER PRIMARY KEY, name BLOB UNIQUE, value BLOB)
"""
_GET = "SELECT value FROM mmhash_memo WHERE name = ? AND length(value) <= ?"
_USED = """
SELECT (page_count - freelist_count) * page_size
FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""
# So few at a time that others hardly wait.
_EVICT = """
DELETE FROM mmhash_memo WHERE age IN (SELECT age FROM mmhash_memo ORDER BY age LIMIT 64)
"""


class Sqlite:
    """The file, with a thread of its own."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mmhash-memo")
        self._connection: sqlite3.Connection | None = None

    async def get(self, name: bytes) -> bytes | None:
        """The value, if there is one."""
        return await self._run(partial(_get, name))

    async def put(self, name: bytes, value: bytes) -> None:
        """Keep the value, and let go of the oldest until there is room."""
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
                # The next time it is opened anew: it may be another file then.
                self._disconnect()
                raise

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            # Each statement is a transaction of its own, but where one is begun.
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            self._connection = connection
            connection.execute("PRAGMA journal_mode = WAL")
            # No entry is waited for: a crash of the host may cost the last ones, not the file.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(_TABLE)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _get(name: bytes, connection: sqlite3.Connection) -> bytes | None:
    found = connection.execute(_GET, (name, MAX_SEALED)).fetchone()
    # A file that somebody wrote into may hold anything.
    return found[0] if found is not None and isinstance(found[0], bytes) else None


def _put(name: bytes, value: bytes, max_bytes: int, connection: sqlite3.Connection) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "INSERT OR REPLACE INTO mmhash_memo (name, value) VALUES (?, ?)", (name, value)
        )
        while connection.execute(_USED).fetchone()[0] > max_bytes:
            if connection.execute(_EVICT).rowcount == 0:
                break
