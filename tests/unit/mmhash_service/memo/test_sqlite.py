"""The memo in an SQLite file: shared, bounded, and no more than misses when the file is bad."""

import asyncio
import os
from pathlib import Path

import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from mmhash.lru import LruCache
from mmhash_service.http.app import create_app
from mmhash_service.memo.memo import entry_size
from mmhash_service.memo.sqlite import SqliteStore
from mmhash_service.settings import Settings
from tests.support.in_process import running
from tests.support.memo import hash_pixels

MAX_BYTES = 1 << 20
ENTRIES = 5000  # twice as many as fit

# Beside its entries the file has a schema, and the WAL is folded in when it has a thousand pages.
SCHEMA_BYTES = 4 * 4096
WAL_BYTES = 1100 * 4120


def app_without_memory(path: Path) -> FastAPI:
    """The app with its memo in that file alone: each lookup comes to it."""
    app = create_app(Settings(decoders=1, memo_url=SecretStr(f"sqlite:{path}")))
    app.state.resources.memo._cache = LruCache(0, entry_size)
    return app


def test_what_is_kept_outlives_the_process(tmp_path: Path) -> None:
    async def put() -> None:
        store = SqliteStore(tmp_path / "memo", MAX_BYTES)
        await store.put(b"a", b"1")
        await store.put(b"a", b"2")
        await store.close()

    async def get() -> list[bytes | None]:
        store = SqliteStore(tmp_path / "memo", MAX_BYTES)
        found = [await store.get(name) for name in (b"a", b"b")]
        await store.close()
        return found

    asyncio.run(put())
    assert asyncio.run(get()) == [b"2", None]


def test_the_oldest_go_and_the_file_does_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "memo"

    async def fill() -> list[bytes | None]:
        store = SqliteStore(path, MAX_BYTES)
        for number in range(ENTRIES):
            await store.put(number.to_bytes(32), os.urandom(400))
            if number % 500 == 0:
                assert path.stat().st_size <= MAX_BYTES + SCHEMA_BYTES
                assert (tmp_path / "memo-wal").stat().st_size <= WAL_BYTES
        found = [await store.get(number.to_bytes(32)) for number in range(ENTRIES)]
        await store.close()
        return found

    found = [value is not None for value in asyncio.run(fill())]
    assert sum(found) > MAX_BYTES / 2 / 450
    assert not any(found[: -sum(found)])  # only the newest are left


def test_an_entry_larger_than_the_bound_is_not_kept(tmp_path: Path) -> None:
    async def test() -> bytes | None:
        store = SqliteStore(tmp_path / "memo", 50_000)
        await store.put(b"large", bytes(60_000))
        await store.put(b"small", b"1")
        assert await store.get(b"small") == b"1"
        found = await store.get(b"large")
        await store.close()
        return found

    assert asyncio.run(test()) is None


@pytest.mark.parametrize("content", [b"no database at all" * 1000, None])
def test_a_file_that_is_no_database_costs_misses_and_is_let_be(
    images: list[bytes], tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "memo"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with running(app_without_memory(path)) as server:
        assert [hash_pixels(server.client, image)["memo"] for image in images[:20]] == ["miss"] * 20
    assert path.is_dir() if content is None else path.read_bytes() == content
