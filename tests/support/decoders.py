"""Finds decoder processes, and reads their state from /proc."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx

from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.settings import Settings

_MODULE = b"mmhash_service.decoder.process"


class LateDecoders(DecoderPool):
    """Decoders that start before the first image or readiness probe: most tests need none."""

    def open(self) -> None:
        """Let the pool call its own method when it needs the processes."""
        self.open = super().open  # type: ignore[method-assign]


def run_with_pool(
    function: Callable[[DecoderPool], Coroutine[Any, Any, Any]], **settings: Any
) -> Any:
    """Run a coroutine function with a started pool. By default the pool has one decoder."""

    async def main() -> Any:
        pool = DecoderPool(Settings(**{"decoders": 1, **settings}))
        try:
            await wait_until_ready(pool)
            return await function(pool)
        finally:
            await pool.close()

    return asyncio.run(main())


async def wait_until_ready(pool: DecoderPool) -> None:
    """Wait at most a minute until all processes of a pool have started."""
    for _ in range(12):  # the probe itself waits for 5 s
        if await pool.is_ready():
            return
    raise AssertionError("the decoders did not start")


def wait_for_ready(client: httpx.Client) -> None:
    """Wait at most a minute until a service says that all of its decoders have started."""
    until = time.monotonic() + 60
    while client.get("/ready").status_code != 200:
        assert time.monotonic() < until, "the decoders did not start"


def children() -> list[int]:
    """Return the decoder processes of this thread. Servers of other tests have their own threads."""
    thread = threading.get_native_id()
    listed = map(int, Path(f"/proc/self/task/{thread}/children").read_text().split())
    return sorted(filter(is_decoder, listed))


def is_decoder(pid: int) -> bool:
    """Return True if a process is a decoder and has not exited."""
    try:
        return _MODULE in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def state(pid: int) -> str:
    """Return the state of a process as in proc(5), or Z if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"
