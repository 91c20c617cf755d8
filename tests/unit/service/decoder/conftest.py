"""A pool of real decoder processes."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.settings import Settings


@asynccontextmanager
async def _running(**settings: Any) -> AsyncIterator[DecoderPool]:
    pool = DecoderPool(Settings(**{"decoders": 1, **settings}))
    assert await pool.is_ready()
    try:
        yield pool
    finally:
        await pool.close()


@pytest.fixture(scope="session")
def with_pool() -> Callable[..., Any]:
    """Run a coroutine function with a pool that has started."""

    def run(function: Callable[[DecoderPool], Coroutine[Any, Any, Any]], **settings: Any) -> Any:
        async def main() -> Any:
            async with _running(**settings) as pool:
                return await function(pool)

        return asyncio.run(main())

    return run


def _decoders() -> set[int]:
    """Return the decoder processes of this process."""
    decoders = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            is_decoder = b"mmhash_service.decoder.process" in (path / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid() and is_decoder:
            decoders.add(int(path.name))
    return decoders


@pytest.fixture
def children() -> Callable[[], list[int]]:
    """The decoder processes that the test started: a server of other tests may have its own."""
    others = _decoders()
    return lambda: sorted(_decoders() - others)


@pytest.fixture(scope="session")
def photo() -> bytes:
    """A JPEG of noise."""
    body = BytesIO()
    Image.effect_noise((320, 240), 40).convert("RGB").save(body, "JPEG")
    return body.getvalue()
