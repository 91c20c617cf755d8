"""A pool of real decoder processes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.settings import Settings
from tests.support.decoders import is_decoder, wait_until_ready


@asynccontextmanager
async def _running(**settings: Any) -> AsyncIterator[DecoderPool]:
    pool = DecoderPool(Settings(**{"decoders": 1, **settings}))
    try:
        await wait_until_ready(pool)
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


@pytest.fixture
def children() -> Callable[[], list[int]]:
    """The decoder processes of the test: a server of other tests starts its own in a thread."""

    def children() -> list[int]:
        thread = threading.get_native_id()
        listed = map(int, Path(f"/proc/self/task/{thread}/children").read_text().split())
        return sorted(filter(is_decoder, listed))

    return children


@pytest.fixture(scope="session")
def photo() -> bytes:
    """A JPEG of noise."""
    body = BytesIO()
    Image.effect_noise((320, 240), 40).convert("RGB").save(body, "JPEG")
    return body.getvalue()
